// What a row of the table may say, and for a row that breaks a rule the nearest one that keeps them all.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <numeric>

#include "ballast/base/error.h"
#include "ballast/plan/placement.h"

namespace ballast {

namespace {

// Every shard is whole blocks of all codecs of its row, so their least common multiple pads each group: no more than one codec alone may ask for.
constexpr int64_t kLargestUnit = 65536;

bool reduces(Movement movement) { return movement == Movement::Reduce || movement == Movement::ReduceOn; }
bool has_codec(const CodecChoice& choice) { return !choice.native && choice.codec.blocked(); }

// Calls `visit(key, choice)` for every codec that the row names.
template <class Row, class Visit>
void for_codecs(Row& row, const Visit& visit) {
  visit("weights.storage", row.weights.storage);
  visit("gradients.storage", row.gradients.storage);
  visit("optimizer.storage", row.optimizer.storage);
  if (row.secondary) visit("secondary.storage", row.secondary->storage);
  for (size_t m = 0; m < row.wire.size(); ++m) {
    for (auto& entry : row.wire[m]) visit(fmt::format("wire.{}", name_of(static_cast<Movement>(m))), entry.codec);
  }
}

bool divide_well(const PlacementRow& row) {
  int64_t unit = 1;
  for_codecs(row, [&](const std::string&, const CodecChoice& choice) {
    if (has_codec(choice) && unit <= kLargestUnit) unit = std::lcm(unit, choice.codec.block);
  });
  return unit <= kLargestUnit;
}

// Storage codecs belong to what is made anew in every step; native is fp32 for gradients and optimizer.
bool stores_well(const char* state, const CodecChoice& storage) {
  return storage.native || std::string_view(state) == "secondary" || (std::string_view(state) != "weights" && storage.codec == CodecSpec{});
}

bool is_codec(const CodecSpec& codec) {
  try {
    check_codec(codec);
  } catch (const Error&) {
    return false;
  }
  return true;
}

bool fall(const std::vector<WireEntry>& entries) {
  return std::is_sorted(entries.begin(), entries.end(), [](const WireEntry& a, const WireEntry& b) { return a.up_to > b.up_to; });
}

// --- refusals -------------------------------------------------------------------------------------------------------------------------

class Rules {
 public:
  Rules(const PlacementRow& row, const Topology& topology) : row_(row), topology_(topology) {}

  void check() const {
    cut_no_further("weights", row_.weights);
    cut_no_further("gradients", row_.gradients);
    check_state("weights", row_.weights);
    check_state("gradients", row_.gradients);
    check_state("optimizer", row_.optimizer);
    if (row_.secondary) check_secondary();
    for_codecs(row_, [&](const std::string& key, const CodecChoice& choice) {
      try {
        check_codec(choice.codec);
      } catch (const Error& error) {
        refuse(fmt::format("{}: {}", key, error.summary()), key, choice.codec.text(), "int8 and int4: block a multiple of 8 from 8 to 65536; the others have no block");
      }
    });
    for (size_t m = 0; m < row_.wire.size(); ++m) check_entries(static_cast<Movement>(m));
    check_blocks();
  }

 private:
  [[noreturn]] void refuse(const std::string& what, const std::string& key, const std::string& found, const std::string& expected) const {
    throw Error(ErrorKind::Usage, what)
        .at("placement", key.empty() ? "groups " + row_.pattern : key)
        .found(found)
        .expected(expected)
        .cure("a legal neighbour: " + table_text(legal_neighbour(row_, topology_), topology_));
  }

  std::string name(int level) const { return topology_.name_of(level); }

  void cut_no_further(const char* state, const StatePlace& place) const {
    if (place.level <= row_.optimizer.level) return;
    refuse(fmt::format("illegal placement: {} must not be cut further than the optimizer state", state), "",
           fmt::format("{} over {}, optimizer over {}", state, name(place.level), name(row_.optimizer.level)),
           fmt::format("{} <= optimizer in the nesting of levels: the optimizer's shard lies inside the {} shard", state, state));
  }

  void check_state(const char* state, const StatePlace& place) const {
    if (place.tier != Tier::Device) refuse(fmt::format("{}: only the tier 'device' can be placed yet", state), fmt::format("{}.tier", state), "", "device");
    if (stores_well(state, place.storage)) return;
    const bool weights = std::string_view(state) == "weights";
    refuse(fmt::format("placement.{} cannot be stored as {}", state, place.storage.codec.name), fmt::format("{}.storage", state), "",
           weights ? "native (the compute dtype); a copy with fewer bits is secondary: {shard: LEVEL, storage: int8}" : "native or fp32");
  }

  void check_secondary() const {
    check_state("secondary", *row_.secondary);
    if (row_.weights.level != kSelf && !row_.keep) return;
    refuse(row_.keep ? "illegal placement: kept weights leave nothing for secondary weights to serve" : "illegal placement: secondary weights belong to weights that are cut", "",
           fmt::format("weights over {}, secondary over {}{}", name(row_.weights.level), name(row_.secondary->level), row_.keep ? ", keep" : ""),
           "secondary only beside weights over a level, without keep");
  }

  // A list names each level once, outermost first; or every entry says how far its hop reaches.
  void check_entries(Movement movement) const {
    const std::vector<WireEntry>& entries = row_.wire[static_cast<size_t>(movement)];
    if (entries.empty()) return;
    const std::string key = fmt::format("wire.{}", name_of(movement));
    const int inner = row_.inner_of(movement), outer = row_.outer_of(movement, topology_);
    size_t spans = 0;
    for (const WireEntry& entry : entries) {
      spans += entry.up_to != kEachLevel;
      if (entry.feedback && !reduces(movement)) refuse(key + ": error feedback belongs to sums of gradients", key, "", "feedback in wire.reduce or wire.reduce_on");
      if (entry.feedback && !has_codec(entry.codec)) refuse(key + ": error feedback needs a block codec", key, entry.codec.text(), "int8 or int4");
    }
    if (spans == 0) {
      const int hops = outer - inner;
      if (entries.size() == 1 || entries.size() == static_cast<size_t>(hops)) return;
      refuse(fmt::format("{} lists {} codecs", key, entries.size()), key, "",
             hops == 0 ? "one codec: the movement crosses no level" : fmt::format("one codec for all hops, or {}: one per level, outermost first", hops));
    }
    if (spans != entries.size()) refuse(key + ": some entries say up_to, some do not", key, "", "up_to in all entries or in none");
    if (outer > inner && entries.front().up_to < outer) {
      refuse(fmt::format("{}: the outermost hop ends at {}", key, name(entries.front().up_to)), key, "", fmt::format("up_to: {}, where the movement ends", name(outer)));
    }
    if (!fall(entries)) refuse(key + ": hops must be listed outermost first", key, "", "up_to falling from entry to entry");
  }

  void check_blocks() const {
    if (divide_well(row_)) return;
    std::vector<std::string> blocks;
    for_codecs(row_, [&](const std::string& key, const CodecChoice& choice) {
      if (has_codec(choice)) blocks.push_back(fmt::format("{} {}", key, choice.codec.block));
    });
    refuse("illegal placement: the blocks of a row fit no common shard", "", fmt::format("blocks: {}", fmt::join(blocks, ", ")),
           fmt::format("blocks that divide one another, or whose least common multiple is at most {}: every shard is whole blocks of all of them", kLargestUnit));
  }

  const PlacementRow& row_;
  const Topology& topology_;
};

// --- text -------------------------------------------------------------------------------------------------------------------------------

std::string quoted(const std::string& word) {
  const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '-'; });
  return plain ? word : '"' + word + '"';
}

using Pairs = std::vector<std::pair<std::string, std::string>>;

std::string table_of(const Pairs& pairs) {
  std::vector<std::string> words;
  for (const auto& [key, value] : pairs) words.push_back(key + ": " + value);
  return fmt::format("{{{}}}", fmt::join(words, ", "));
}

std::string codec_text(const CodecChoice& choice, const Pairs& more = {}) {
  Pairs pairs{{"codec", choice.native ? "native" : choice.codec.name}};
  if (has_codec(choice)) {
    if (choice.codec.block != kDefaultBlock) pairs.emplace_back("block", fmt::format("{}", choice.codec.block));
    if (!choice.codec.symmetric) pairs.emplace_back("symmetric", "false");
    if (choice.codec.stochastic) pairs.emplace_back("rounding", "stochastic");
  }
  pairs.insert(pairs.end(), more.begin(), more.end());
  return pairs.size() == 1 ? pairs.front().second : table_of(pairs);
}

std::string entry_text(const WireEntry& entry, const Topology& topology) {
  Pairs more;
  if (entry.up_to != kEachLevel) more.emplace_back("up_to", quoted(topology.name_of(entry.up_to)));
  if (entry.feedback) {
    more.emplace_back("feedback", *entry.feedback == FeedbackSpec{} ? "true" : fmt::format("{{beta: {}, reset: {}}}", entry.feedback->beta, entry.feedback->reset));
  }
  return codec_text(entry.codec, more);
}

std::string state_text(const StatePlace& place, const Topology& topology, bool forward = false) {
  Pairs pairs{{"shard", quoted(topology.name_of(place.level))}};
  if (place.tier != Tier::Device) pairs.emplace_back("tier", place.tier == Tier::Host ? "host" : "disk");
  if (!place.storage.native) pairs.emplace_back("storage", codec_text(place.storage));
  if (forward) pairs.emplace_back("forward", "true");
  return pairs.size() == 1 ? pairs.front().second : table_of(pairs);
}

}  // namespace

void check_legal(const PlacementRow& row, const Topology& topology) { Rules(row, topology).check(); }

PlacementRow legal_neighbour(PlacementRow row, const Topology& topology) {
  for (StatePlace* place : {&row.weights, &row.gradients, &row.optimizer}) {
    place->tier = Tier::Device;
    const bool fp32 = place != &row.weights && place->storage.codec == CodecSpec{};
    if (!fp32) place->storage = {};
  }
  if (row.secondary) {
    row.secondary->tier = Tier::Device;
    row.keep = false;
    if (row.weights.level == kSelf) row.weights.level = topology.outermost();
  }
  row.optimizer.level = std::max({row.optimizer.level, row.weights.level, row.gradients.level});
  int64_t largest = 0;
  for_codecs(row, [&](const std::string&, CodecChoice& choice) {
    CodecSpec& codec = choice.codec;
    if (choice.native) codec = {};
    else if (!codec.blocked()) codec = {.name = codec.name};
    else if (!is_codec(codec)) codec.block = std::clamp<int64_t>((codec.block + 4) / 8 * 8, 8, kLargestUnit);
    if (has_codec(choice)) largest = std::max(largest, codec.block);
  });
  for (size_t m = 0; m < row.wire.size(); ++m) {
    const auto movement = static_cast<Movement>(m);
    std::vector<WireEntry>& entries = row.wire[m];
    if (entries.empty()) continue;
    const int inner = row.inner_of(movement), outer = row.outer_of(movement, topology);
    for (WireEntry& entry : entries) {
      if (!reduces(movement)) entry.feedback.reset();
      if (entry.feedback && !has_codec(entry.codec)) entry.codec = {false, parse_codec("int8")};
      if (entry.feedback) largest = std::max(largest, entry.codec.codec.block);
    }
    const auto spans = std::count_if(entries.begin(), entries.end(), [](const WireEntry& entry) { return entry.up_to != kEachLevel; });
    if (spans == static_cast<std::ptrdiff_t>(entries.size())) {
      std::stable_sort(entries.begin(), entries.end(), [](const WireEntry& a, const WireEntry& b) { return a.up_to > b.up_to; });
      if (outer > inner) entries.front().up_to = std::max(entries.front().up_to, outer);
      continue;
    }
    for (WireEntry& entry : entries) entry.up_to = kEachLevel;
    if (entries.size() > 1) entries.resize(static_cast<size_t>(std::max(1, outer - inner)), entries.back());
  }
  if (!divide_well(row)) {
    for_codecs(row, [&](const std::string&, CodecChoice& choice) {
      if (has_codec(choice)) choice.codec.block = largest;
    });
  }
  return row;
}

std::string table_text(const PlacementRow& row, const Topology& topology) {
  Pairs pairs;
  if (row.pattern != "*") pairs.emplace_back("groups", '"' + row.pattern + '"');
  pairs.emplace_back("weights", state_text(row.weights, topology));
  if (row.secondary) pairs.emplace_back("secondary", state_text(*row.secondary, topology, row.secondary_forward));
  pairs.emplace_back("gradients", state_text(row.gradients, topology));
  pairs.emplace_back("optimizer", state_text(row.optimizer, topology));
  Pairs wire;
  for (size_t m = 0; m < row.wire.size(); ++m) {
    std::vector<std::string> entries;
    for (const WireEntry& entry : row.wire[m]) entries.push_back(entry_text(entry, topology));
    if (!entries.empty()) wire.emplace_back(name_of(static_cast<Movement>(m)), entries.size() == 1 ? entries.front() : fmt::format("[{}]", fmt::join(entries, ", ")));
  }
  if (!wire.empty()) pairs.emplace_back("wire", table_of(wire));
  if (row.keep) pairs.emplace_back("keep", "true");
  return table_of(pairs);
}

}  // namespace ballast
