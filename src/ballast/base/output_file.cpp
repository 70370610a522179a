#include "ballast/base/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "ballast/base/error.h"

namespace ballast {

namespace {

std::string cure_of(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT: return "free space on this file system, or choose another folder";
    case EACCES:
    case EPERM: return "check the permissions of the file and of its folder";
    case EROFS: return "the file system is read-only: choose another folder";
    case EMFILE:
    case ENFILE: return "raise the limit of open files (ulimit -n)";
    default: return "";
  }
}

constexpr size_t kLargestWrite = size_t{1} << 30;  // Linux writes at most 2^31 - 4096 bytes in one call

}  // namespace

void throw_system_error(int error, const std::string& doing, const std::filesystem::path& path) {
  throw Error(ErrorKind::Environment, "cannot " + doing).at(path.string()).found(errno_text(error)).cure(cure_of(error));
}

OutputFile::OutputFile(std::filesystem::path path, Mode mode) : path_(std::move(path)) {
  const int flags = mode == Mode::CreateNew ? O_EXCL : O_APPEND;
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0666);
  if (descriptor_ < 0) throw_system_error(errno, mode == Mode::CreateNew ? "create" : "open for writing", path_);
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)), bytes_(other.bytes_) {}

OutputFile& OutputFile::operator=(OutputFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void OutputFile::write(const void* data, size_t bytes) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::write(descriptor_, next, std::min(bytes, kLargestWrite));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) throw_system_error(written < 0 ? errno : ENOSPC, "write", path_);
    next += written;
    bytes -= static_cast<size_t>(written);
    bytes_ += written;
  }
}

void OutputFile::close() {
  if (descriptor_ < 0) return;
  if (::close(std::exchange(descriptor_, -1)) != 0) throw_system_error(errno, "close", path_);
}

void sync_file(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) throw_system_error(errno, "open", path);
  const int error = ::fsync(descriptor) == 0 ? 0 : errno;
  ::close(descriptor);
  if (error != 0) throw_system_error(error, "sync", path);
}

void rename_path(const std::filesystem::path& from, const std::filesystem::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) throw_system_error(errno, "rename to " + to.string(), from);
}

void remove_tree(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  if (error) throw_system_error(error.value(), "remove", path);
}

}  // namespace ballast
