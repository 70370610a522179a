#pragma once
// The JSON header of a safetensors file: read event by event, so that duplicate keys are seen and nothing but what the
// format allows is kept.
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace ballast {

// What to do about a file that contradicts itself.
constexpr const char* kSafetensorsCure = "fetch the file again; if it was made here, save the model again with save_pretrained(FOLDER)";

constexpr uint64_t kLargestSafetensorsHeader = 100'000'000;  // bytes; the reference implementation's bound

struct SafetensorsHeader {
  struct Entry {
    std::string name, dtype;
    std::vector<int64_t> shape;
    uint64_t begin = 0, end = 0;  // bytes from the end of the header
  };
  std::vector<Entry> entries;
  std::map<std::string, std::string> metadata;
};

// Each entry has a known dtype and shape x element bytes == end - begin; whether ranges fit together is left to the
// caller. Throws Error(CorruptFile).
SafetensorsHeader parse_safetensors_header(std::string_view text, const std::string& file);

// The header as bytes, padded with spaces so that the data after it starts on a multiple of 8; entries in the given
// order.
std::string write_safetensors_header(const SafetensorsHeader& header);

}  // namespace ballast
