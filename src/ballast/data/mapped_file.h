#pragma once
// A file mapped into memory for reading.
#include <cstddef>
#include <cstdint>
#include <string>

namespace ballast {

class MappedFile {
 public:
  // Throws Error(Data) where there is no such regular file or it is empty, Error(Environment) where it cannot be mapped.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;

  const std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace ballast
