#pragma once
// Writes one safetensors file in a streaming way: sizes are known beforehand, so the header goes first and tensors
// follow in any order. The file appears under its name only when it is complete.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace ballast {

struct TensorToWrite {
  std::string name, dtype;  // dtype as in the header: "F32", "BF16"
  std::vector<int64_t> shape;
};

class SafetensorsWriter {
 public:
  // Writes the header to `file`.partial. Metadata {"format": "pt"} is what transformers asks for.
  SafetensorsWriter(std::filesystem::path file, const std::vector<TensorToWrite>& tensors,
                    const std::map<std::string, std::string>& metadata = {{"format", "pt"}});
  ~SafetensorsWriter();  // removes what was not finished
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  // `bytes` of a tensor from its byte `offset` on; each byte must be written exactly once before finish().
  void write(const std::string& name, const void* data, int64_t bytes, int64_t offset = 0);
  // fsync, rename, fsync of the folder. Throws Error(Environment) with the text of errno.
  void finish();
  int64_t data_bytes() const { return data_bytes_; }

 private:
  struct Place {
    int64_t begin, bytes, written;
  };
  void write_at(int64_t position, const void* data, int64_t bytes);
  std::filesystem::path file_, partial_;
  std::map<std::string, Place> places_;
  int64_t header_bytes_ = 0, data_bytes_ = 0;
  int descriptor_ = -1;
};

}  // namespace ballast
