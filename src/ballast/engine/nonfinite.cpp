#include "ballast/engine/nonfinite.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "ballast/codec/codec.h"

namespace ballast {

Range last_nonfinite(const CodecSpec& codec, const void* encoded, int64_t elements) {
  const int64_t chunk = codec.block * std::max<int64_t>(1, 65536 / codec.block);
  std::vector<float> values(static_cast<size_t>(std::min(chunk, elements)));
  Range found;
  for (int64_t first = 0; first < elements; first += chunk) {
    const int64_t count = std::min(chunk, elements - first);
    codec_for(codec).decode(static_cast<const char*>(encoded) + codec.encoded_bytes(first), count, values.data());
    const auto end = std::make_reverse_iterator(values.begin()), begin = std::make_reverse_iterator(values.begin() + count);
    const auto bad = std::find_if(begin, end, [](float value) { return !std::isfinite(value); });
    if (bad == end) continue;
    const int64_t element = end - bad - 1, block = element / codec.block * codec.block;
    found = {first + block, std::min(codec.block, count - block)};
  }
  return found;
}

std::string tensors_of(const ParameterGroup& group, const Range& elements) {
  std::vector<std::string> names;
  for (const ParameterTensor& tensor : group.tensors) {
    if (tensor.offset < elements.begin + elements.count && elements.begin < tensor.offset + tensor.numel()) names.push_back(tensor.name);
  }
  if (names.empty()) return group.name;   // padding
  return names.size() == 1 ? names.front() : fmt::format("one of {}", fmt::join(names, ", "));
}

std::string blame_text(const std::vector<std::string>& by_rank) {
  char nearest = '~';
  for (const std::string& one : by_rank) if (!one.empty()) nearest = std::min(nearest, one.front());
  std::map<std::string, std::vector<size_t>> ranks;
  for (size_t r = 0; r < by_rank.size(); ++r) if (!by_rank[r].empty() && by_rank[r].front() == nearest) ranks[by_rank[r].substr(1)].push_back(r);
  std::string text;
  for (const auto& [what, whose] : ranks) text += fmt::format("; {} on rank{} {}", what, whose.size() == 1 ? "" : "s", fmt::join(whose, ", "));
  return text;
}

}  // namespace ballast
