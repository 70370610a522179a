#pragma once
// A file as a stream of decompressed bytes: plain, gzip (.gz, several members) or Zstandard (.zst, several frames).
#include <cstdint>
#include <memory>
#include <string>

namespace ballast {

class ByteStream {
 public:
  virtual ~ByteStream() = default;
  // Fills up to `size` bytes; 0 only at the end of the data. Throws Error(Environment) for read errors, Error(CorruptFile) for
  // compressed data that are damaged or end early.
  virtual size_t read(char* data, size_t size) = 0;
  virtual int64_t consumed() const = 0;   // bytes of the file on disk used so far
};

// Chooses by the last extension. Throws Error(Data) for a missing, empty or non-regular file, and where the first bytes say
// another compression than the name.
std::unique_ptr<ByteStream> open_stream(const std::string& path);

// The path without .gz or .zst.
std::string without_compression(const std::string& path);

// Size of a regular file in bytes. Throws Error(Data) where there is none, naming the nearest name in its folder.
int64_t input_file_bytes(const std::string& path);

}  // namespace ballast
