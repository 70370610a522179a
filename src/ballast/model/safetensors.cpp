#include "ballast/model/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <set>

#include "ballast/base/error.h"
#include "ballast/base/files.h"
#include "ballast/model/json_object.h"
#include "ballast/model/safetensors_header.h"

namespace ballast {

// A whole file, mapped read-only for as long as any view of it lives.
struct SafetensorsSet::Mapping {
  const std::byte* data = nullptr;
  size_t size = 0;

  explicit Mapping(const std::filesystem::path& file) {
    const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
      throw Error(ErrorKind::Data, "cannot open the weights")
          .at(file.string())
          .found(errno_text(errno))
          .cure("fetch what is missing, or check the permissions");
    struct stat status {};
    int fault = ::fstat(descriptor, &status) != 0 ? errno : 0;
    if (fault == 0 && S_ISDIR(status.st_mode)) fault = EISDIR;
    size = static_cast<size_t>(status.st_size);
    if (fault == 0 && size > 0) {
      void* mapped = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
      if (mapped == MAP_FAILED)
        fault = errno;
      else
        data = static_cast<const std::byte*>(mapped);
    }
    ::close(descriptor);
    if (fault != 0)
      throw Error(ErrorKind::Environment, "cannot map the weights").at(file.string()).found(errno_text(fault));
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() {
    if (data) ::munmap(const_cast<std::byte*>(data), size);
  }
};

SafetensorsContent parse_safetensors(std::span<const std::byte> bytes, const std::string& name) {
  const auto corrupt = [&](const std::string& what) { return Error(ErrorKind::CorruptFile, what).at(name).cure(kSafetensorsCure); };
  if (bytes.size() < 8)
    throw corrupt("too short for a safetensors header")
        .found(fmt::format("{} bytes", bytes.size()))
        .expected("at least 8 bytes");
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = (length << 8) | static_cast<uint64_t>(bytes[static_cast<size_t>(i)]);
  if (length > kLargestSafetensorsHeader || length > bytes.size() - 8)
    throw Error(ErrorKind::CorruptFile, "the header length is impossible")
        .at(name, "byte 0")
        .found(fmt::format("{} bytes of header in a file of {} bytes", length, bytes.size()))
        .expected("a complete safetensors file")
        .cure("the file may be truncated, or not be safetensors: fetch it again");
  const std::string_view header(reinterpret_cast<const char*>(bytes.data()) + 8, static_cast<size_t>(length));
  SafetensorsHeader parsed = parse_safetensors_header(header, name);

  // Ranges in the order of their places must follow one another from 0 to the end.
  std::vector<const SafetensorsHeader::Entry*> order;
  for (const auto& entry : parsed.entries) order.push_back(&entry);
  std::sort(order.begin(), order.end(),
            [](const auto* a, const auto* b) { return std::pair(a->begin, a->end) < std::pair(b->begin, b->end); });
  const uint64_t data_bytes = bytes.size() - 8 - length;
  uint64_t position = 0;
  for (const auto* entry : order) {
    if (entry->begin != position)
      throw Error(ErrorKind::CorruptFile,
                  entry->begin < position ? "tensors overlap" : "there is a hole between tensors")
          .at(name, fmt::format("tensor '{}'", printable(entry->name)))
          .found(fmt::format("data from byte {}", entry->begin))
          .expected(fmt::format("data from byte {}", position))
          .cure(kSafetensorsCure);
    if (entry->end > data_bytes)
      throw Error(ErrorKind::CorruptFile, "a tensor ends after the end of the file")
          .at(name, fmt::format("tensor '{}'", printable(entry->name)))
          .found(fmt::format("data up to byte {}", entry->end))
          .expected(fmt::format("at most {}", data_bytes))
          .cure("the file is truncated: fetch it again");
    position = entry->end;
  }
  if (position != data_bytes)
    throw corrupt("bytes follow the last tensor")
        .found(fmt::format("{} bytes of data", data_bytes))
        .expected(fmt::format("{}", position));

  SafetensorsContent content;
  content.metadata = std::move(parsed.metadata);
  const std::byte* data = bytes.data() + 8 + length;
  for (auto& entry : parsed.entries) {
    const auto size = static_cast<int64_t>(entry.end - entry.begin);
    content.tensors[entry.name] = {entry.dtype, entry.shape, data + entry.begin, size,
                                   size / safetensors_element_bytes(entry.dtype)};
  }
  return content;
}

void SafetensorsSet::add(const std::filesystem::path& file) {
  mappings_.push_back(std::make_shared<const Mapping>(file));
  const Mapping& mapping = *mappings_.back();
  SafetensorsContent content = parse_safetensors({mapping.data, mapping.size}, file.string());
  if (mappings_.size() == 1) metadata_ = std::move(content.metadata);
  for (auto& [name, tensor] : content.tensors) {
    const auto [place, fresh] = files_.emplace(name, file.string());
    if (!fresh)
      throw Error(ErrorKind::CorruptFile, fmt::format("two shards hold tensor '{}'", printable(name)))
          .at(file.string())
          .found(fmt::format("also in {}", place->second))
          .cure("remove the shards that do not belong to the index, or fetch all of them again");
    tensors_[name] = std::move(tensor);
  }
}

SafetensorsSet SafetensorsSet::open_file(const std::filesystem::path& file) {
  SafetensorsSet set;
  set.add(file);
  return set;
}

SafetensorsSet SafetensorsSet::open_index(const std::filesystem::path& index) {
  const std::string text = read_file(index);
  const nlohmann::json json = parse_json_object(text, index.string());
  const auto corrupt = [&](const std::string& what) {
    return Error(ErrorKind::CorruptFile, what)
        .at(index.string(), "key weight_map")
        .cure("fetch the index and its shards again, all of one version");
  };
  const auto map = json.find("weight_map");
  if (map == json.end() || !map->is_object() || map->empty()) throw corrupt("no map from tensors to shards");

  std::set<std::string> shards;
  for (const auto& [name, value] : map->items()) {
    if (!value.is_string()) throw corrupt(fmt::format("the shard of '{}' is no string", printable(name)));
    const std::string shard = value.get<std::string>();
    const bool plain =
        !shard.empty() && shard.front() != '.' && shard.find_first_of(std::string("/\\\0", 3)) == std::string::npos;
    if (!plain) throw corrupt("a shard must be a plain file name beside the index").found(printable(shard));
    shards.insert(shard);
  }
  SafetensorsSet set;
  for (const std::string& shard : shards) set.add(index.parent_path() / shard);
  for (const auto& [name, value] : map->items()) {
    const auto found = set.files_.find(name);
    const std::string expected = (index.parent_path() / value.get<std::string>()).string();
    if (found == set.files_.end() || found->second != expected)
      throw corrupt(fmt::format("tensor '{}' is not in the shard that the index names", printable(name)))
          .found(found == set.files_.end() ? "no shard has it" : found->second)
          .expected(expected);
  }
  for (const auto& [name, file] : set.files_)
    if (!map->contains(name))
      throw corrupt(fmt::format("tensor '{}' of {} is not in the index", printable(name), file));
  return set;
}

const StoredTensor* SafetensorsSet::find(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

std::string SafetensorsSet::file_of(const std::string& name) const {
  const auto found = files_.find(name);
  return found == files_.end() ? "" : found->second;
}

}  // namespace ballast
