#include "ballast/checkpoint/load.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <set>

#include "ballast/base/check.h"
#include "ballast/base/error.h"

namespace ballast {

std::string item_name(const StateItem& item) { return fmt::format("{}/{}@{}:{}", item.state, item.tensor, item.begin, item.end); }

StateItem parse_item_name(const std::string& name, const std::string& file) {
  const auto corrupt = [&] {
    return Error(ErrorKind::CorruptFile, "an item of a state shard has no such name").at(file).found(printable(name)).expected("STATE/TENSOR@BEGIN:END");
  };
  StateItem item;
  const size_t slash = name.find('/'), at = name.rfind('@'), colon = name.rfind(':');
  if (slash == std::string::npos || at == std::string::npos || colon == std::string::npos || slash == 0 || at < slash || colon < at) throw corrupt();
  item.state = name.substr(0, slash);
  item.tensor = name.substr(slash + 1, at - slash - 1);
  const auto number = [&](const char* first, const char* last, int64_t& value) {
    const auto [end, error] = std::from_chars(first, last, value);
    return error == std::errc{} && end == last && value >= 0;
  };
  const char* text = name.data();
  if (!number(text + at + 1, text + colon, item.begin) || !number(text + colon + 1, text + name.size(), item.end) || item.end < item.begin) throw corrupt();
  return item;
}

std::string stored_dtype(c10::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat: return "F32";
    case at::kBFloat16: return "BF16";
    case at::kHalf: return "F16";
    case at::kDouble: return "F64";
    case at::kLong: return "I64";
    case at::kInt: return "I32";
    case at::kByte: return "U8";
    case at::kChar: return "I8";
    default: break;
  }
  BALLAST_CHECK(false, "no state is stored as {}", c10::toString(dtype));
  return "";
}

StateReader::StateReader(const CheckpointHandle& checkpoint) : folder_(checkpoint.folder.string()) {
  for (int64_t rank = 0; rank < checkpoint.state.ranks; ++rank) {
    const std::string file = (checkpoint.folder / shard_file_name(rank, checkpoint.state.ranks)).string();
    shards_.push_back(SafetensorsSet::open_file(file));
    const auto& metadata = shards_.back().metadata();
    const auto expect = [&](const char* key, int64_t value) {
      const auto found = metadata.find(key);
      if (found == metadata.end() || found->second != std::to_string(value))
        throw Error(ErrorKind::CorruptFile, "a state shard belongs elsewhere")
            .at(file)
            .found(fmt::format("{} {}", key, found == metadata.end() ? "absent" : printable(found->second)))
            .expected(fmt::format("{} {}", key, value));
    };
    expect("step", checkpoint.step);
    expect("rank", rank);
    expect("ranks", checkpoint.state.ranks);
    for (const auto& [name, stored] : shards_.back().tensors()) {
      const StateItem item = parse_item_name(name, file);
      if (stored.numel != item.end - item.begin)
        throw Error(ErrorKind::CorruptFile, "an item of a state shard does not hold the elements of its name")
            .at(file, printable(name))
            .found(fmt::format("{} elements", stored.numel));
      parts_[{item.state, item.tensor}].push_back({item.begin, item.end, stored, file});
    }
  }
  for (auto& [key, parts] : parts_)
    std::stable_sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.begin < b.begin; });
}

void StateReader::read(const StateItem& wanted) const {
  BALLAST_CHECK(wanted.data.numel() == wanted.end - wanted.begin && wanted.data.is_contiguous() && wanted.data.device().is_cpu(), "{}",
                item_name(wanted));
  const auto missing = [&](int64_t element) {
    return Error(ErrorKind::CorruptFile, "the checkpoint holds only a part of a state")
        .at(folder_, item_name(wanted))
        .found(fmt::format("element {} is in no shard", element));
  };
  const std::string dtype = stored_dtype(wanted.data.scalar_type());
  const int64_t element_bytes = static_cast<int64_t>(wanted.data.element_size());
  auto* out = static_cast<std::byte*>(wanted.data.data_ptr());
  const auto found = parts_.find({wanted.state, wanted.tensor});
  int64_t reached = wanted.begin;
  if (found != parts_.end()) {
    for (const Part& part : found->second) {
      if (part.end <= reached || part.begin >= wanted.end) continue;
      if (part.begin > reached) break;
      if (part.stored.dtype != dtype)
        throw Error(ErrorKind::Usage, "a state is stored in another dtype")
            .at(part.file, item_name(wanted))
            .found(part.stored.dtype)
            .expected(dtype)
            .cure("resume with the storage codec that the run was started with");
      const int64_t end = std::min(part.end, wanted.end);
      std::memcpy(out + (reached - wanted.begin) * element_bytes, part.stored.data + (reached - part.begin) * element_bytes,
                  static_cast<size_t>((end - reached) * element_bytes));
      reached = end;
    }
  }
  if (reached < wanted.end) throw missing(reached);
}

std::vector<std::string> StateReader::states() const {
  std::set<std::string> names;
  for (const auto& [key, parts] : parts_) names.insert(key.first);
  return {names.begin(), names.end()};
}

}  // namespace ballast
