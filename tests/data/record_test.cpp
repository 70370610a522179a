// Records to tokens: what is encoded, in which order, and which targets count.
#include "ballast/data/record.h"

#include <gtest/gtest.h>

#include "data/byte_tokenizer.h"

namespace ballast {
namespace {

using testing::ByteTokenizer;

TEST(EncodeRecord, TextIsTrainedWholeWithItsEnd) {
  Record record;
  record.text = "ab";
  const TokenizedRecord result = encode_record(record, RecordFormat{}, ByteTokenizer());
  EXPECT_EQ(result.tokens, (std::vector<int32_t>{'a', 'b', 256}));
  EXPECT_EQ(result.trained, (std::vector<Span>{{0, 3}}));
}

TEST(EncodeRecord, EmptyTextIsItsEndAlone) {
  const TokenizedRecord result = encode_record(Record{}, RecordFormat{}, ByteTokenizer());
  EXPECT_EQ(result.tokens, std::vector<int32_t>{256});
  EXPECT_EQ(result.trained, (std::vector<Span>{{0, 1}}));
}

TEST(EncodeRecord, NothingStandsBetweenPromptAndCompletion) {
  Record record;
  record.text = "ab", record.completion = "cd";
  const TokenizedRecord result = encode_record(record, parse_format("prompt-completion"), ByteTokenizer());
  EXPECT_EQ(result.tokens, (std::vector<int32_t>{'a', 'b', 'c', 'd', 256}));
  EXPECT_EQ(result.trained, (std::vector<Span>{{2, 5}}));
  record.completion.clear();
  EXPECT_EQ(encode_record(record, parse_format("prompt-completion"), ByteTokenizer()).trained,
            (std::vector<Span>{{2, 3}}));
}

TEST(EncodeRecord, ChatTrainsTheAssistantAndTheEnd) {
  Record record;
  record.messages = {{"user", "hi"}, {"assistant", "yo"}};
  const TokenizedRecord result = encode_record(record, parse_format("chat", {}, "chatml"), ByteTokenizer());
  std::string text, trained;
  for (size_t i = 0; i < result.tokens.size(); ++i) {
    const int32_t id = result.tokens[i];
    const std::string piece = id == 256   ? "<E>"
                              : id == 257 ? "<S>"
                              : id == 258 ? "<T>"
                                          : std::string(1, static_cast<char>(id));
    text += piece;
    for (const Span& s : result.trained)
      if (s.begin <= static_cast<int64_t>(i) && static_cast<int64_t>(i) < s.end) trained += piece;
  }
  EXPECT_EQ(text, "<S>user\nhi<T>\n<S>assistant\nyo<T>\n<E>");
  EXPECT_EQ(trained, "yo<T><E>");
}

}  // namespace
}  // namespace ballast
