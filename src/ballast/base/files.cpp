#include "ballast/base/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <vector>

namespace ballast {

namespace {

constexpr size_t kBuffer = 1 << 18;

Error system_error(int error, const std::string& what, const std::filesystem::path& path,
                   ErrorKind kind = ErrorKind::Environment) {
  Error result(kind, what);
  std::string cure;
  if (error == ENOSPC || error == EDQUOT) cure = "free space on the disk";
  if (error == EACCES || error == EPERM) cure = "check the permissions";
  if (error == EROFS) cure = "the disk is read-only: choose another folder";
  return std::move(result).at(printable(path.string(), 400)).found(errno_text(error)).cure(cure);
}

// An open descriptor that closes itself on the way out of an exception.
class Descriptor {
 public:
  Descriptor(const std::filesystem::path& path, int flags, mode_t mode = 0) {
    do {
      value_ = ::open(path.c_str(), flags | O_CLOEXEC, mode);
    } while (value_ < 0 && errno == EINTR);
  }
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return value_; }
  int release() {
    const int value = value_;
    value_ = -1;
    return value;
  }

 private:
  int value_ = -1;
};

void write_all(int descriptor, const char* bytes, size_t size, const std::filesystem::path& path) {
  while (size > 0) {
    const ssize_t done = ::write(descriptor, bytes, size);
    if (done < 0) {
      if (errno == EINTR) continue;
      throw system_error(errno, "cannot write", path);
    }
    bytes += done;
    size -= static_cast<size_t>(done);
  }
}

std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

}  // namespace

FileWriter::FileWriter(int descriptor, std::filesystem::path path)
    : descriptor_(descriptor), path_(std::move(path)), buffer_(new char[kBuffer]) {}
FileWriter::~FileWriter() = default;

void FileWriter::write(const void* bytes, size_t size) {
  written_ += static_cast<int64_t>(size);
  if (size >= kBuffer) {
    flush();
    write_all(descriptor_, static_cast<const char*>(bytes), size, path_);
    return;
  }
  if (used_ + size > kBuffer) flush();
  if (size > 0) std::memcpy(buffer_.get() + used_, bytes, size);
  used_ += size;
}

void FileWriter::flush() {
  write_all(descriptor_, buffer_.get(), used_, path_);
  used_ = 0;
}

void write_aside(const std::filesystem::path& path, const std::function<void(FileWriter&)>& writer) {
  // Unique among the threads and processes of a machine; hidden, so that no reader takes it for the file.
  static std::atomic<int64_t> counter{0};
  const std::filesystem::path aside =
      folder_of(path) / fmt::format(".{}.{}.{}.tmp", path.filename().string(), ::getpid(), counter++);
  try {
    {
      Descriptor file(aside, O_WRONLY | O_CREAT | O_EXCL, 0644);
      if (file.get() < 0) throw system_error(errno, "cannot create a file", aside);
      FileWriter out(file.get(), path);
      writer(out);
      out.flush();
      if (::fsync(file.get()) != 0) throw system_error(errno, "cannot sync", path);
      // close reports late write errors on network file systems
      if (::close(file.release()) != 0 && errno != EINTR) throw system_error(errno, "cannot close", path);
    }
    if (::rename(aside.c_str(), path.c_str()) != 0)
      throw system_error(errno, "cannot rename the finished file into place", path);
  } catch (...) {
    ::unlink(aside.c_str());
    throw;
  }
  sync_folder(folder_of(path));
}

void write_aside(const std::filesystem::path& path, std::string_view text) {
  write_aside(path, [&](FileWriter& out) { out.write(text); });
}

void sync_folder(const std::filesystem::path& folder) {
  Descriptor file(folder, O_RDONLY | O_DIRECTORY);
  if (file.get() < 0) throw system_error(errno, "cannot open the folder", folder);
  // Some network file systems cannot sync folders and say EINVAL: their renames are durable on their own terms.
  if (::fsync(file.get()) != 0 && errno != EINVAL) throw system_error(errno, "cannot sync the folder", folder);
}

std::string nearest_file(const std::filesystem::path& path) {
  constexpr size_t kMost = 1000;
  std::vector<std::string> names;
  std::error_code ignored;
  for (std::filesystem::directory_iterator it(folder_of(path), ignored), end;
       !ignored && it != end && names.size() < kMost; it.increment(ignored))
    names.push_back(it->path().filename().string());
  std::sort(names.begin(), names.end());
  return nearest(path.filename().string(), names);
}

std::string read_file(const std::filesystem::path& path, const ReadLimits& limits) {
  Descriptor file(path, O_RDONLY);
  if (file.get() < 0) {
    const int error = errno;
    if (error != ENOENT && error != ENOTDIR) throw system_error(error, "cannot open the file", path);
    Error absent = system_error(error, "cannot open the file", path, limits.missing);
    if (limits.missing == ErrorKind::CorruptFile) throw absent;   // a part of a set is gone, not misspelt
    const std::string near = nearest_file(path);
    throw std::move(absent).cure(near.empty() ? "check the path; a relative one starts at the working folder"
                                                : fmt::format("did you mean '{}'?", printable(near)));
  }
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) throw system_error(errno, "cannot read the size", path);
  if (S_ISDIR(status.st_mode))
    throw Error(limits.missing, "a folder where a file is expected").at(printable(path.string(), 400));
  const auto too_large = [&](int64_t size) {
    return Error(ErrorKind::Data, "the file is too large")
        .at(printable(path.string(), 400))
        .found(fmt::format("{} bytes", size))
        .expected(fmt::format("at most {} bytes", limits.bytes));
  };
  if (status.st_size > limits.bytes) throw too_large(status.st_size);
  // Pipes and /proc files have size 0: read until the end in any case.
  std::string out(static_cast<size_t>(status.st_size), '\0');
  size_t used = 0;
  for (;;) {
    if (used == out.size()) out.resize(std::max<size_t>(out.size() + (out.size() >> 1), used + 4096));
    const ssize_t done = ::read(file.get(), out.data() + used, out.size() - used);
    if (done < 0) {
      if (errno == EINTR) continue;
      throw system_error(errno, "cannot read", path);
    }
    if (done == 0) break;
    used += static_cast<size_t>(done);
    if (static_cast<int64_t>(used) > limits.bytes) throw too_large(static_cast<int64_t>(used));
  }
  out.resize(used);
  return out;
}

void make_folders(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw system_error(error.value(), "cannot create the folder", folder);
}

FolderLock::FolderLock(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / ".lock";
  Descriptor file(path, O_RDWR | O_CREAT, 0644);
  if (file.get() < 0) throw system_error(errno, "cannot open the lock of the folder", path);
  if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) throw system_error(errno, "cannot lock the folder", path);
    char holder[64] = {};
    const ssize_t size = ::pread(file.get(), holder, sizeof holder - 1, 0);
    std::string who = size > 0 ? printable(std::string(holder, static_cast<size_t>(size))) : "an unknown process";
    throw Error(ErrorKind::Usage, "the folder is in use by another process")
        .at(printable(folder.string(), 400))
        .found(who)
        .cure("wait until it ends, or choose another run.dir");
  }
  const std::string text = fmt::format("process {}", ::getpid());
  if (::ftruncate(file.get(), 0) != 0 || ::pwrite(file.get(), text.data(), text.size(), 0) < 0)
    throw system_error(errno, "cannot write the lock", path);
  descriptor_ = file.release();
}

FolderLock::~FolderLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

}  // namespace ballast
