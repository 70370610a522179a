#pragma once
// The safetensors format: an 8-byte little-endian header length, a JSON header, and the bytes of the tensors one after
// another. Reading maps the file and validates the whole header before anything is touched; writing streams.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace ballast {

// One tensor as it stands in the file. `data` may be unaligned: read it by memcpy or read_as_float.
struct StoredTensor {
  std::string dtype;  // as in the header: "F32", "BF16", "F16", "F64", "I64", ...
  std::vector<int64_t> shape;
  const std::byte* data = nullptr;
  int64_t bytes = 0;
  int64_t numel = 0;
};

// Bytes of one element, 0 for a dtype that the format does not know.
int64_t safetensors_element_bytes(const std::string& dtype);

// The tensors and metadata of one file's bytes, pointing into them.
struct SafetensorsContent {
  std::map<std::string, StoredTensor> tensors;
  std::map<std::string, std::string> metadata;
};

// Validates header length, JSON, dtypes, shapes (shape x element = range, no overflow), and that the ranges cover the
// rest of the bytes exactly: no overlap, hole or trailing byte. Throws Error(CorruptFile) naming `name` and the place.
SafetensorsContent parse_safetensors(std::span<const std::byte> bytes, const std::string& name);

// Elements [begin, begin + count) of a float tensor (F32, BF16, F16, F64) as fp32. Throws Error(CorruptFile) for
// another dtype and for an fp64 value that fp32 cannot hold.
void read_as_float(const StoredTensor& tensor, const std::string& name, int64_t begin, int64_t count, float* out);
// Index of the first NaN or infinity; `count` if there is none.
int64_t first_nonfinite(const float* values, int64_t count);

// Every tensor of a model folder's weights, whichever file holds it. The views live as long as this object.
class SafetensorsSet {
 public:
  // One file, or the shards that an index names (model.safetensors.index.json). A shard's name must be a plain file
  // name in the index's folder; the map and the shards must agree exactly.
  static SafetensorsSet open_file(const std::filesystem::path& file);
  static SafetensorsSet open_index(const std::filesystem::path& index);

  const std::map<std::string, StoredTensor>& tensors() const { return tensors_; }
  const StoredTensor* find(const std::string& name) const;
  // The file that holds a tensor, for messages.
  std::string file_of(const std::string& name) const;
  const std::map<std::string, std::string>& metadata() const { return metadata_; }  // of the first file

 private:
  struct Mapping;
  void add(const std::filesystem::path& file);
  std::vector<std::shared_ptr<const Mapping>> mappings_;
  std::map<std::string, StoredTensor> tensors_;
  std::map<std::string, std::string> files_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace ballast
