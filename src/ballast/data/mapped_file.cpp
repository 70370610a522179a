#include "ballast/data/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "ballast/base/error.h"
#include "ballast/data/byte_stream.h"

namespace ballast {

MappedFile::MappedFile(const std::string& path) : path_(path), bytes_(input_file_bytes(path)) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) throw Error(ErrorKind::Environment, "cannot open the file").at(path).found(errno_text(errno));
  void* mapped = ::mmap(nullptr, static_cast<size_t>(bytes_), PROT_READ, MAP_SHARED, file, 0);
  const int error = errno;
  ::close(file);
  if (mapped == MAP_FAILED)
    throw Error(ErrorKind::Environment, "cannot map the file").at(path).found(errno_text(error));
  data_ = static_cast<const std::byte*>(mapped);
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<std::byte*>(data_), static_cast<size_t>(bytes_));
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}

}  // namespace ballast
