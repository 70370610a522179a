#pragma once
// Files that are never half-written: writing aside with fsync and rename, whole reads within limits, and the lock of a
// run folder. Failures are Error with the path and errno's text.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "ballast/base/error.h"

namespace ballast {

// A buffered writer onto a file descriptor. Throws Error(Environment) when the system refuses.
class FileWriter {
 public:
  FileWriter(int descriptor, std::filesystem::path path);
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;
  void write(const void* bytes, size_t size);
  void write(std::string_view text) { write(text.data(), text.size()); }
  void flush();
  int64_t written() const { return written_; }  // bytes handed over so far

 private:
  int descriptor_;
  std::filesystem::path path_;
  std::unique_ptr<char[]> buffer_;
  size_t used_ = 0;
  int64_t written_ = 0;
};

// Writes a temporary file in the folder of `path`, syncs it, renames it over `path` and syncs the folder. If anything
// throws, the temporary file is removed and `path` is as before.
void write_aside(const std::filesystem::path& path, const std::function<void(FileWriter&)>& writer);
void write_aside(const std::filesystem::path& path, std::string_view text);
// Makes names in a folder durable: call after renaming or removing files in it.
void sync_folder(const std::filesystem::path& folder);

struct ReadLimits {
  int64_t bytes = int64_t{1} << 30;
  ErrorKind missing = ErrorKind::Data;  // the kind of "no such file"
};
// The whole file. Throws limits.missing if it is not there or is no regular file, Environment for other system errors,
// and Error(Data) when larger than the limit.
std::string read_file(const std::filesystem::path& path, const ReadLimits& limits = {});

// The name in the path's folder that is nearest to its own, or "" if none is near: for "did you mean".
std::string nearest_file(const std::filesystem::path& path);

// Creates a folder and its parents. Throws Error(Environment).
void make_folders(const std::filesystem::path& folder);

// Exclusive use of a folder by one process, kept as long as the object lives: flock on FOLDER/.lock, so that the lock
// of a dead process is void. Throws Error(Usage) naming the process that holds it.
class FolderLock {
 public:
  explicit FolderLock(const std::filesystem::path& folder);
  ~FolderLock();
  FolderLock(FolderLock&& other) noexcept : descriptor_(other.descriptor_) { other.descriptor_ = -1; }
  FolderLock& operator=(FolderLock&&) = delete;

 private:
  int descriptor_;
};

}  // namespace ballast
