// Any bytes as JSON lines, in every format: records of valid text, or a typed error. The first byte chooses the format
// and how the file is cut.
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "ballast/base/error.h"
#include "ballast/data/record_reader.h"

namespace {

using namespace ballast;

// All texts of the records, or the error's summary: what must not depend on where chunks are cut.
std::string read(const std::string& path, const RecordFormat& format, int64_t chunk) {
  std::string out;
  try {
    const auto reader = open_jsonl(path, chunk);
    while (const auto part = reader->next())
      part->decode(format, [&](const Record& r) {
        out += r.place + r.text + '|' + r.completion;
        for (const ChatMessage& m : r.messages) out += m.role + ':' + m.content;
        out += '\n';
      });
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::Internal) __builtin_trap();
    out += error.what();
  }
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  static const std::string folder = [] {
    const auto path = std::filesystem::temp_directory_path() / ("ballast-fuzz-jsonl-" + std::to_string(::getpid()));
    std::filesystem::create_directories(path);
    return path.string();
  }();
  // Compression is seen in the first bytes and must match the name.
  const char* names[] = {"/a.jsonl", "/a.jsonl.gz", "/a.jsonl.zst"};
  const std::string path = folder + names[data[0] / 3 % 3];
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(data + 1), static_cast<std::streamsize>(size - 1));
  RecordFormat format;
  format.kind = static_cast<RecordKind>(data[0] % 3);
  const std::string whole = read(path, format, 1 << 20), pieces = read(path, format, 1 + data[0] / 9);
  // Damaged compression shows sooner in large chunks, before the lines of the same chunk.
  if (data[0] / 3 % 3 == 0 && whole != pieces) __builtin_trap();
  return 0;
}
