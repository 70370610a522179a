// Readers: values of every format, line and row numbers, chunk borders, and a table of bad inputs with what the message
// says.
#include "ballast/data/record_reader.h"

#include <arrow/api.h>
#include <arrow/io/file.h>
#include <gtest/gtest.h>
#include <parquet/arrow/writer.h>

#include "ballast/base/error.h"
#include "data/byte_tokenizer.h"

namespace ballast {
namespace {

using testing::TemporaryFolder;

std::vector<Record> all(RecordReader& reader, const RecordFormat& format) {
  std::vector<Record> records;
  while (const auto chunk = reader.next()) chunk->decode(format, [&](const Record& r) { records.push_back(r); });
  return records;
}
std::vector<Record> all(const std::string& path, const RecordFormat& format) {
  return all(*open_records(path, format), format);
}

std::string failure(const std::function<void()>& call, ErrorKind kind = ErrorKind::Data) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

TEST(Format, ParsesNamesAndFields) {
  const RecordFormat format = parse_format("prompt-completion", {{"prompt", "question"}, {"completion", "answer"}});
  EXPECT_EQ(format.fields(), (std::vector<std::string>{"question", "answer"}));
  EXPECT_EQ(parse_format("text").fields(), std::vector<std::string>{"text"});
  EXPECT_NE(parse_format("text").description(), parse_format("text", {{"text", "body"}}).description());
  EXPECT_NE(failure([] { parse_format("txt"); }, ErrorKind::Usage).find("did you mean 'text'"), std::string::npos);
  EXPECT_NE(failure(
                [] {
                  parse_format("text", {{"promt", "x"}});
                },
                ErrorKind::Usage)
                .find("has no field 'promt'"),
            std::string::npos);
  EXPECT_NE(failure(
                [] {
                  parse_format("prompt-completion", {{"promt", "x"}});
                },
                ErrorKind::Usage)
                .find("did you mean 'prompt'"),
            std::string::npos);
  failure([] { parse_format("text", {{"text", ""}}); }, ErrorKind::Usage);
}

TEST(Jsonl, ReadsEveryFormat) {
  const TemporaryFolder folder;
  const std::string text = folder.file(
      "t.jsonl",
      "{\"text\": \"a\\u00e9\\n\", \"n\": 1}\n\n  \r\n{\"n\": [1, {}], \"text\": \"\"}\r\n{\"text\":\"last\"}");
  const auto records = all(text, parse_format("text"));
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records[0].text, "a\xc3\xa9\n");
  EXPECT_EQ(records[1].text, "");
  EXPECT_EQ(records[1].place, "line 4");
  EXPECT_EQ(records[2].text, "last");
  EXPECT_EQ(records[2].place, "line 5");

  const std::string pairs = folder.file("p.jsonl", "\xef\xbb\xbf{\"question\": \"q\", \"answer\": \"a\"}\n");
  const auto pair = all(pairs, parse_format("prompt-completion", {{"prompt", "question"}, {"completion", "answer"}}));
  ASSERT_EQ(pair.size(), 1u);
  EXPECT_EQ(pair[0].text + "|" + pair[0].completion, "q|a");

  RecordFormat chat;
  chat.kind = RecordKind::Chat;
  const std::string chats = folder.file(
      "c.jsonl", R"({"messages": [{"role": "user", "content": "hi"}, {"content": "yo", "role": "assistant"}]})");
  const auto conversation = all(chats, chat);
  ASSERT_EQ(conversation.size(), 1u);
  EXPECT_EQ(conversation[0].messages, (std::vector<ChatMessage>{{"user", "hi"}, {"assistant", "yo"}}));
}

TEST(Jsonl, ChunkBordersChangeNothing) {
  const TemporaryFolder folder;
  std::string content;
  for (int i = 0; i < 300; ++i)
    content += "{\"text\": \"" + std::string(static_cast<size_t>(i * 37 % 211), 'x') + std::to_string(i) + "\"}\n" +
               (i % 50 == 0 ? "\n" : "");
  for (const bool newline : {true, false}) {
    const std::string path = folder.file("a.jsonl", newline ? content : content.substr(0, content.size() - 1));
    const RecordFormat format;
    const auto whole = all(path, format);
    ASSERT_EQ(whole.size(), 300u);
    for (const int64_t chunk : {1, 2, 10, 64, 100, 1000, 10000}) {
      const auto reader = open_jsonl(path, chunk);
      const auto records = all(*reader, format);
      ASSERT_EQ(records.size(), whole.size()) << chunk;
      for (size_t i = 0; i < whole.size(); ++i) {
        ASSERT_EQ(records[i].text, whole[i].text) << chunk << " " << i;
        ASSERT_EQ(records[i].place, whole[i].place) << chunk << " " << i;
      }
    }
  }
}

TEST(Jsonl, BadLinesAreNamed) {
  struct Case {
    const char* content;
    std::vector<const char*> says;
  };
  const std::string deep = "{\"text\": " + std::string(5000, '[') + std::string(5000, ']') + "}";
  const Case cases[] = {
      {"{\"text\": \"a\"}\n{\"txt\": \"b\", \"id\": 3}\n",
       {"line 2", "no field 'text'", "fields: txt, id", "did you mean 'txt'", "data.fields: {text: txt}"}},
      {"{}\n", {"line 1", "no fields"}},
      {"{\"text\": 3}\n", {"line 1", "wrong type", "a number", "a string"}},
      {"{\"text\": null}\n", {"null"}},
      {"{\"text\": [\"a\"]}\n", {"a list"}},
      {"{\"text\": \"a\", \"text\": \"b\"}\n", {"twice"}},
      {"{\"text\": \"a\"\n", {"line 1", "not valid JSON"}},
      {"{\"text\": \"a\"} {\"text\": \"b\"}\n", {"line 1"}},
      {"\n\n\"text\"\n", {"line 3", "not a JSON object", "a string"}},
      {"[{\"text\": \"a\"}]\n", {"line 1", "jq -c"}},
      {"[\n{\"text\": \"a\"}\n]\n", {"line 1", "jq -c"}},
      {"{\"text\": \"\xff\"}\n", {"line 1", "UTF-8"}},
      {"{\"text\": \"\\ud800\"}\n", {"line 1"}},
      {"{\"text\": \"a\tb\"}\n", {"line 1"}},
      {"{\"text\": 1e999999}\n", {"line 1"}},
      {"text,id\n", {"line 1"}},
      {deep.c_str(), {"line 1"}},
  };
  const TemporaryFolder folder;
  for (const Case& c : cases) {
    const std::string path = folder.file("bad.jsonl", c.content);
    const std::string message = failure([&] { all(path, RecordFormat{}); });
    EXPECT_NE(message.find(path), std::string::npos) << message;
    for (const char* part : c.says) EXPECT_NE(message.find(part), std::string::npos) << part << " not in " << message;
  }
}

TEST(Jsonl, BadConversationsAreNamed) {
  RecordFormat chat;
  chat.kind = RecordKind::Chat;
  const TemporaryFolder folder;
  for (const auto& [content, says] :
       std::vector<std::pair<const char*, const char*>>{{R"({"messages": []})", "no messages"},
                                                        {R"({"messages": "hi"})", "a list of objects"},
                                                        {R"({"messages": ["hi"]})", "messages[0]"},
                                                        {R"({"messages": [{"role": "user"}]})", "no field 'content'"},
                                                        {R"({"messages": [{"role": 1, "content": ""}]})", "wrong type"},
                                                        {R"({"conversation": []})", "no field 'messages'"}}) {
    const std::string path = folder.file("bad.jsonl", content);
    const std::string message = failure([&] { all(path, chat); });
    EXPECT_NE(message.find(says), std::string::npos) << message;
  }
}

TEST(Text, AFileIsARecord) {
  const TemporaryFolder folder;
  const auto records = all(folder.file("a.txt", "\xef\xbb\xbfone\ntwo\n"), RecordFormat{});
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].text, "one\ntwo\n");
  const std::string path = folder.file("b.txt", "a\xc3");
  EXPECT_NE(failure([&] { all(path, RecordFormat{}); }).find("UTF-8"), std::string::npos);
  EXPECT_NE(failure([&] { all(path, parse_format("prompt-completion")); }).find("no fields"), std::string::npos);
}

TEST(Reader, RefusesOtherExtensions) {
  const TemporaryFolder folder;
  for (const char* name : {"a.csv", "a", "a.parquet.gz", "a.jsonl.bz2"})
    EXPECT_NE(failure([&] { open_records(folder.file(name, "x"), RecordFormat{}); }).find(".jsonl"), std::string::npos)
        << name;
}

// Parquet
// ---------------------------------------------------------------------------------------------------------------------

void write_parquet(const std::string& path, const std::shared_ptr<arrow::Table>& table, int64_t group = 700) {
  const auto file = arrow::io::FileOutputStream::Open(path).ValueOrDie();
  const auto types = parquet::ArrowWriterProperties::Builder().store_schema()->build();   // as pyarrow does: dictionaries stay so
  ASSERT_TRUE(parquet::arrow::WriteTable(*table, arrow::default_memory_pool(), file, group, parquet::default_writer_properties(), types).ok());
  ASSERT_TRUE(file->Close().ok());
}

std::shared_ptr<arrow::Array> strings(const std::vector<std::string>& values) {
  arrow::StringBuilder builder;
  EXPECT_TRUE(builder.AppendValues(values).ok());
  return builder.Finish().ValueOrDie();
}

TEST(Parquet, ReadsColumnsOverRowGroupsAndBatches) {
  const TemporaryFolder folder;
  const std::string path = (folder.path() / "a.parquet").string();
  std::vector<std::string> questions, answers;
  arrow::Int64Builder ids;
  for (int i = 0; i < 3000; ++i) {
    questions.push_back("q" + std::to_string(i)), answers.push_back("\xc3\xa9" + std::to_string(i));
    ASSERT_TRUE(ids.Append(i).ok());
  }
  write_parquet(
      path, arrow::Table::Make(arrow::schema({arrow::field("answer", arrow::utf8()), arrow::field("id", arrow::int64()),
                                              arrow::field("question", arrow::utf8())}),
                               {strings(answers), ids.Finish().ValueOrDie(), strings(questions)}));
  const auto records = all(path, parse_format("prompt-completion", {{"prompt", "question"}, {"completion", "answer"}}));
  ASSERT_EQ(records.size(), 3000u);
  for (size_t i = 0; i < records.size(); ++i) {
    ASSERT_EQ(records[i].text, questions[i]);
    ASSERT_EQ(records[i].completion, answers[i]);
    ASSERT_EQ(records[i].place, "row " + std::to_string(i + 1));
  }
  EXPECT_EQ(all(path, parse_format("text", {{"text", "question"}})).back().text, "q2999");
  EXPECT_NE(failure([&] { all(path, parse_format("text", {{"text", "id"}})); }).find("int64"), std::string::npos);
  const std::string missing = failure([&] { all(path, parse_format("text", {{"text", "qestion"}})); });
  EXPECT_NE(missing.find("fields: answer, id, question"), std::string::npos) << missing;
  EXPECT_NE(missing.find("did you mean 'question'"), std::string::npos) << missing;
}

TEST(Parquet, ReadsConversations) {
  const TemporaryFolder folder;
  const std::string path = (folder.path() / "chat.parquet").string();
  const auto role = std::make_shared<arrow::StringBuilder>(), content = std::make_shared<arrow::StringBuilder>();
  const auto type = arrow::struct_({arrow::field("content", arrow::utf8()), arrow::field("role", arrow::utf8())});
  const auto message = std::make_shared<arrow::StructBuilder>(
      type, arrow::default_memory_pool(), std::vector<std::shared_ptr<arrow::ArrayBuilder>>{content, role});
  arrow::ListBuilder lists(arrow::default_memory_pool(), message);
  const auto add = [&](const char* r, const char* c) {
    EXPECT_TRUE(message->Append().ok() && role->Append(r).ok() && content->Append(c).ok());
  };
  ASSERT_TRUE(lists.Append().ok());
  add("user", "one"), add("assistant", "two");
  ASSERT_TRUE(lists.Append().ok());
  add("user", "three");
  write_parquet(
      path, arrow::Table::Make(arrow::schema({arrow::field("messages", lists.type())}), {lists.Finish().ValueOrDie()}));
  RecordFormat chat;
  chat.kind = RecordKind::Chat;
  const auto records = all(path, chat);
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].messages, (std::vector<ChatMessage>{{"user", "one"}, {"assistant", "two"}}));
  EXPECT_EQ(records[1].messages, (std::vector<ChatMessage>{{"user", "three"}}));
  chat.role = "speaker";
  EXPECT_NE(failure([&] { all(path, chat); }).find("speaker"), std::string::npos);
}

TEST(Parquet, ReadsTextThatIsKeptInADictionary) {
  const TemporaryFolder folder;
  const std::string path = (folder.path() / "dictionary.parquet").string();
  const auto write = [&](const std::shared_ptr<arrow::Array>& array) {
    write_parquet(path, arrow::Table::Make(arrow::schema({arrow::field("text", array->type())}), {array}));
  };
  arrow::StringDictionary32Builder builder;
  for (const char* text : {"b", "a", "b"}) ASSERT_TRUE(builder.Append(text).ok());
  write(builder.Finish().ValueOrDie());
  const auto records = all(path, RecordFormat{});
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records[0].text + records[1].text + records[2].text, "bab");
  arrow::StringDictionary32Builder with_null;
  ASSERT_TRUE(with_null.Append("a").ok() && with_null.AppendNull().ok());
  write(with_null.Finish().ValueOrDie());
  EXPECT_NE(failure([&] { all(path, RecordFormat{}); }).find("row 2"), std::string::npos);
  arrow::Dictionary32Builder<arrow::Int64Type> numbers;
  ASSERT_TRUE(numbers.Append(3).ok());
  write(numbers.Finish().ValueOrDie());
  EXPECT_NE(failure([&] { all(path, RecordFormat{}); }).find("wrong type"), std::string::npos);
}

TEST(Parquet, NullsAndBadBytesAreNamed) {
  const TemporaryFolder folder;
  const std::string path = (folder.path() / "n.parquet").string();
  arrow::StringBuilder builder;
  ASSERT_TRUE(builder.Append("a").ok() && builder.AppendNull().ok());
  write_parquet(
      path, arrow::Table::Make(arrow::schema({arrow::field("text", arrow::utf8())}), {builder.Finish().ValueOrDie()}));
  EXPECT_NE(failure([&] { all(path, RecordFormat{}); }).find("row 2"), std::string::npos);
  write_parquet(path, arrow::Table::Make(arrow::schema({arrow::field("text", arrow::utf8())}), {strings({"a\xff"})}));
  EXPECT_NE(failure([&] { all(path, RecordFormat{}); }).find("UTF-8"), std::string::npos);
  write_parquet(path, arrow::Table::Make(arrow::schema({arrow::field("text", arrow::utf8())}), {strings({})}));
  EXPECT_NE(failure([&] { all(path, RecordFormat{}); }).find("no rows"), std::string::npos);
}

TEST(Parquet, DamageIsATypedError) {
  const TemporaryFolder folder;
  const std::string path = (folder.path() / "d.parquet").string();
  std::vector<std::string> rows;
  for (int i = 0; i < 50; ++i) rows.push_back("row number " + std::to_string(i * i));
  write_parquet(path, arrow::Table::Make(arrow::schema({arrow::field("text", arrow::utf8())}), {strings(rows)}));
  const std::string whole = testing::read_all(path);
  int refused = 0;
  for (size_t n = 0; n < whole.size(); n += 7) {
    const std::string cut = folder.file("cut.parquet", whole.substr(0, n));
    failure([&] { all(cut, RecordFormat{}); }, n == 0 ? ErrorKind::Data : ErrorKind::CorruptFile);
  }
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string wrong = whole;
    wrong[i] = static_cast<char>(wrong[i] ^ 0x21);
    const std::string flipped = folder.file("flip.parquet", wrong);
    try {
      all(flipped, RecordFormat{});  // pages carry no checksum, so some bytes change the text unseen
    } catch (const Error& error) {
      ++refused;
      EXPECT_NE(error.kind(), ErrorKind::Internal) << error.what();
    }
  }
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace ballast
