#pragma once
// A file that grows while the run lasts (metrics, events): what is written is in the system's hands when the call returns.
// And the few calls on names that files.h leaves open. Every refusal is an Error(Environment) with path and errno's text.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace ballast {

class OutputFile {
 public:
  enum class Mode { CreateNew, Append };  // CreateNew: the name must be free
  OutputFile(std::filesystem::path path, Mode mode);
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&& other) noexcept;
  ~OutputFile();  // closes; call close() to learn of a failure

  // All of it, or an error.
  void write(const void* data, size_t bytes);
  void write(std::string_view bytes) { write(bytes.data(), bytes.size()); }
  void close();
  int64_t bytes() const { return bytes_; }  // written through this object
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  int64_t bytes_ = 0;
};

// The error of a failed system call on a path: "cannot DO", where, errno's text and, for the usual errors, what to do.
[[noreturn]] void throw_system_error(int error, const std::string& doing, const std::filesystem::path& path);

void sync_file(const std::filesystem::path& path);
void rename_path(const std::filesystem::path& from, const std::filesystem::path& to);
void remove_tree(const std::filesystem::path& path);

}  // namespace ballast
