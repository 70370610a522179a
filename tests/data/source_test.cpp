// Data sets: windows under every limit, one epoch through selection, layout and batch assembly gives every token once.
#include "ballast/data/source.h"

#include <gtest/gtest.h>

#include <map>

#include "ballast/base/error.h"
#include "ballast/data/batch.h"
#include "ballast/layout/policies.h"
#include "data/byte_tokenizer.h"

namespace ballast {
namespace {

using testing::ByteTokenizer;
using testing::TemporaryFolder;

DataOptions options(const TemporaryFolder& folder, const std::string& format, int64_t max_tokens,
                    Overlong overlong = Overlong::Split) {
  return {.format = parse_format(format),
          .limit = {max_tokens, overlong},
          .prepare = {.cache = folder.path() / "cache", .threads = 1}};
}

std::string record(const std::string& prompt, const std::string& completion) {
  return "{\"prompt\": \"" + prompt + "\", \"completion\": \"" + completion + "\"}\n";
}

struct Read {
  std::vector<int64_t> ids, targets;
};
Read read(const DataSet& data, const SampleRef& sample) {
  Read r{std::vector<int64_t>(static_cast<size_t>(sample.length)),
         std::vector<int64_t>(static_cast<size_t>(sample.length))};
  data.read(sample.sample, 0, sample.length, r.ids.data(), r.targets.data());
  return r;
}

TEST(DataSet, SplitsInputsAndShiftsTargets) {
  const TemporaryFolder folder;
  // Tokens a b c d e f g E: 7 positions; with 3 per window: abc, def, g.
  const auto data = open_data({{{folder.file("a.jsonl", record("ab", "cdefg"))}, {}}}, ByteTokenizer(),
                              options(folder, "prompt-completion", 3));
  ASSERT_EQ(data->samples(0), 3);
  const std::vector<std::vector<int64_t>> ids = {{'a', 'b', 'c'}, {'d', 'e', 'f'}, {'g'}},
                                          targets = {{-1, 'c', 'd'}, {'e', 'f', 'g'}, {256}};
  for (int64_t i = 0; i < 3; ++i) {
    const SampleRef sample = data->sample(0, i);
    EXPECT_EQ(sample.sample, static_cast<uint64_t>(3 * i));
    EXPECT_EQ(read(*data, sample).ids, ids[static_cast<size_t>(i)]);
    EXPECT_EQ(read(*data, sample).targets, targets[static_cast<size_t>(i)]);
    EXPECT_EQ(data->trained_targets(sample.sample), i == 0 ? 2 : i == 1 ? 3 : 1);
    EXPECT_EQ(data->length(sample.sample), sample.length);
  }
  EXPECT_EQ(data->counts().tokens, 7);
  EXPECT_EQ(data->counts().trained, 6);
  EXPECT_EQ(data->counts().overlong_records, 1);
  EXPECT_EQ(data->counts().longest, 7);
}

TEST(DataSet, CutsDropsOrFails) {
  const TemporaryFolder folder;
  const std::string path = folder.file("a.jsonl", record("ab", "cdefg") + record("x", "yz"));
  const auto cut = open_data({{{path}, {}}}, ByteTokenizer(), options(folder, "prompt-completion", 3, Overlong::Cut));
  ASSERT_EQ(cut->samples(0), 2);
  EXPECT_EQ(read(*cut, cut->sample(0, 0)).targets, (std::vector<int64_t>{-1, 'c', 'd'}));
  EXPECT_EQ(cut->counts().lost_tokens, 4);
  EXPECT_NE(cut->report().find("1 record over 3 tokens cut (4 tokens left out)"), std::string::npos) << cut->report();
  const auto drop = open_data({{{path}, {}}}, ByteTokenizer(), options(folder, "prompt-completion", 3, Overlong::Drop));
  ASSERT_EQ(drop->samples(0), 1);
  EXPECT_EQ(read(*drop, drop->sample(0, 0)).ids, (std::vector<int64_t>{'x', 'y', 'z'}));
  EXPECT_EQ(drop->counts().lost_tokens, 7);
  try {
    open_data({{{path}, {}}}, ByteTokenizer(), options(folder, "prompt-completion", 3, Overlong::Fail));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Data);
    EXPECT_NE(std::string(error.what()).find(path + ", record 1"), std::string::npos) << error.what();
  }
  EXPECT_THROW(open_data({{{path}, {}}}, ByteTokenizer(), options(folder, "prompt-completion", 1, Overlong::Drop)),
               Error);
  EXPECT_NE(cut->fingerprint(), drop->fingerprint());
  EXPECT_EQ(
      open_data({{{path}, {}}}, ByteTokenizer(), options(folder, "prompt-completion", 3, Overlong::Cut))->fingerprint(),
      cut->fingerprint());
}

TEST(DataSet, CountsRecordsWithoutSampleAndWindowsWithoutTarget) {
  const TemporaryFolder folder;
  const auto data =
      open_data({{{folder.file("a.jsonl", record("", "") + record("abcdefgh", "i") + record("", "z"))}, {}}},
                ByteTokenizer(), options(folder, "prompt-completion", 4));
  EXPECT_EQ(data->counts().short_records, 1);
  EXPECT_EQ(data->samples(0), 4);  // abcd | efgh | i, and z
  EXPECT_EQ(data->counts().untrained_samples, 1);
  EXPECT_EQ(data->counts().trained, 3);
  EXPECT_NE(data->report().find("1 record of fewer than two tokens gives no sample"), std::string::npos)
      << data->report();
  const std::string empty = folder.file("b.jsonl", "{\"text\": \"\"}\n");
  try {
    open_data({{{empty}, {}}}, ByteTokenizer(), options(folder, "text", 4));
    FAIL();
  } catch (const Error& error) {  // as true of evaluation data as of training data
    EXPECT_EQ(error.summary(), "the data hold no sample");
    EXPECT_EQ(error.place(), empty);
  }
}

TEST(DataSet, FindsEverySampleAmongManyRecords) {
  const TemporaryFolder folder;
  std::string content;
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < 500; ++i) {
    const int64_t n = i * i % 23;
    content += "{\"text\": \"" + std::string(static_cast<size_t>(n), 'x') + "\"}\n";
    for (int64_t left = n; left > 0; left -= 5) lengths.push_back(std::min<int64_t>(left, 5));
  }
  const auto data = open_data({{{folder.file("a.jsonl", content)}, {}}}, ByteTokenizer(), options(folder, "text", 5));
  ASSERT_EQ(data->samples(0), static_cast<int64_t>(lengths.size()));
  for (int64_t i = 0; i < data->samples(0); ++i) {
    const SampleRef sample = data->sample(0, i);
    ASSERT_EQ(sample.length, lengths[static_cast<size_t>(i)]) << i;
    ASSERT_EQ(data->length(sample.sample), sample.length);
    ASSERT_EQ(data->trained_targets(sample.sample), sample.length);
  }
}

// The whole way: every target of every record exactly once per epoch, at any limit, world size and layout, across a
// resume.
TEST(DataSet, EveryTokenIsTrainedOncePerEpoch) {
  const TemporaryFolder folder;
  std::string content;
  std::map<int64_t, int64_t> expected;  // target id -> times
  int64_t total = 0;
  for (int i = 0; i < 150; ++i) {
    const std::string prompt(static_cast<size_t>(i % 7), 'p'),
        completion(static_cast<size_t>(i * 5 % 31), static_cast<char>('a' + i % 10));
    content += record(prompt, completion);
    const int64_t n = static_cast<int64_t>(prompt.size() + completion.size());
    for (int64_t t = std::max<int64_t>(1, static_cast<int64_t>(prompt.size())); t <= n; ++t)
      ++expected[t == n ? 256 : completion[0]], ++total;
  }
  const std::string path = folder.file("a.jsonl", content);
  for (const int64_t limit : {4, 9, 1000})
    for (const int64_t ranks : {1, 3})
      for (const char* policy : {"packed", "padded"}) {
        const auto data = open_data({{{path}, {}}}, ByteTokenizer(), options(folder, "prompt-completion", limit));
        EXPECT_EQ(data->counts().trained, total);
        std::map<int64_t, int64_t> seen;
        Cursor cursor;
        int64_t samples = 0;
        while (samples < data->samples(0)) {
          Selector selector(*data, 3, 60, cursor);  // a new one each step, as if resumed
          Selection selection = selector.next();
          cursor = Cursor::parse(selector.cursor().json());
          if (samples + static_cast<int64_t>(selection.size()) > data->samples(0))
            selection.resize(static_cast<size_t>(data->samples(0) - samples));
          samples += static_cast<int64_t>(selection.size());
          int64_t trained = 0;
          const Layout layout = make_layout(policy, selection, {.ranks = ranks, .micro_tokens = 64});
          for (const auto& rank : layout.ranks)
            for (const MicroBatchLayout& micro : rank) {
              const BatchArrays batch = assemble(micro, *data);
              ASSERT_EQ(batch.ids.size(), static_cast<size_t>(micro.slots()));
              ASSERT_EQ(batch.starts.back(), micro.slots());
              for (const int64_t t : batch.targets)
                if (t >= 0) ++seen[t];
              trained += batch.trained;
            }
          ASSERT_EQ(trained, trained_of(selection, *data));
        }
        EXPECT_EQ(seen, expected) << limit << " " << ranks << " " << policy;
      }
}

TEST(Batch, PaddingAndPositions) {
  const TemporaryFolder folder;
  const auto data = open_data({{{folder.file("a.jsonl", record("ab", "cdefg"))}, {}}}, ByteTokenizer(),
                              options(folder, "prompt-completion", 4));
  MicroBatchLayout layout;
  layout.pieces = {{4, 0, 3, 2}, {0, 1, 2, 0}};  // the second window whole, padded; a piece of the first
  const BatchArrays batch = assemble(layout, *data);
  EXPECT_EQ(batch.ids, (std::vector<int64_t>{'e', 'f', 'g', 256, 256, 'b', 'c'}));
  EXPECT_EQ(batch.targets, (std::vector<int64_t>{'f', 'g', 256, -1, -1, 'c', 'd'}));
  EXPECT_EQ(batch.positions, (std::vector<int64_t>{0, 1, 2, 3, 4, 1, 2}));
  EXPECT_EQ(batch.starts, (std::vector<int64_t>{0, 5, 7}));
  EXPECT_EQ(batch.sample_keys, (std::vector<uint64_t>{4, 0}));
  EXPECT_EQ(batch.trained, 5);
  const BatchArrays empty = assemble({}, *data);
  EXPECT_TRUE(empty.ids.empty());
  EXPECT_EQ(empty.starts, std::vector<int64_t>{0});
}

TEST(DataSet, MixesSourcesByTrainedTokensAndForeignFilesJoin) {
  const TemporaryFolder folder;
  std::string llmc(1024, '\0');
  const int32_t header[3] = {20240520, 1, 101};
  std::memcpy(llmc.data(), header, sizeof header);
  for (uint16_t i = 0; i < 101; ++i) llmc.append(reinterpret_cast<const char*>(&i), 2);
  const std::string bin = folder.file("a.bin", llmc);
  std::string content;
  for (int i = 0; i < 40; ++i) content += record("question", "answer");
  const std::string path = folder.file("a.jsonl", content);
  const auto data = open_data({{{bin}, 3.0}, {{path}, 1.0}}, ByteTokenizer(), options(folder, "prompt-completion", 10));
  ASSERT_EQ(data->streams(), 2);
  EXPECT_EQ(data->samples(0), 10);
  EXPECT_EQ(read(*data, data->sample(0, 3)).targets, (std::vector<int64_t>{31, 32, 33, 34, 35, 36, 37, 38, 39, 40}));
  EXPECT_EQ(data->sample(1, 0).sample, uint64_t{1} << kPositionBits);
  Selector selector(*data, 1, 50);
  for (int i = 0; i < 100; ++i) selector.next();
  const auto& streams = selector.cursor().streams;
  EXPECT_NEAR(static_cast<double>(streams[0].trained) / static_cast<double>(streams[1].trained), 3.0, 0.05);

  const auto joined = open_data({{{bin, path}, {}}}, ByteTokenizer(), options(folder, "prompt-completion", 10));
  EXPECT_EQ(joined->streams(), 1);
  EXPECT_EQ(joined->samples(0), data->samples(0) + data->samples(1));
  EXPECT_EQ(joined->highest_id(), 256);
  joined->check_vocabulary(257);
  EXPECT_THROW(joined->check_vocabulary(256), Error);
  EXPECT_THROW(open_data({{{bin}, 3.0}, {{path}, {}}}, ByteTokenizer(), options(folder, "text", 10)), Error);
  EXPECT_THROW(open_data({{{bin}, -1.0}}, ByteTokenizer(), options(folder, "text", 10)), Error);
  EXPECT_THROW(open_data({}, ByteTokenizer(), options(folder, "text", 10)), Error);
}

TEST(DataSet, PreparedStoresCanBeNamed) {
  const TemporaryFolder folder;
  const std::string path = folder.file("a.jsonl", record("ab", "cdefg"));
  const DataOptions o = options(folder, "prompt-completion", 3);
  const std::string store = prepare_store({path}, o.format, ByteTokenizer(), o.prepare).store;
  EXPECT_EQ(open_data({{{store}, {}}}, ByteTokenizer(), o)->counts().tokens, 7);
  EXPECT_THROW(open_data({{{store}, {}}}, ByteTokenizer(259, 9), o), Error);
}

TEST(Overlong, Parses) {
  for (const char* name : {"split", "cut", "drop", "error"}) EXPECT_EQ(name_of(parse_overlong(name)), name);
  EXPECT_THROW(parse_overlong("truncate"), Error);
}

}  // namespace
}  // namespace ballast
