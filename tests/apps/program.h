#pragma once
// Runs the built binary as a user does, without a shell, and gives back what it printed.
#include <sys/types.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace ballast::testing {

struct Printed {
  int code = -1;          // exit code; minus the signal if one ended it
  std::string output, errors;
};

// A program that runs in the background until wait().
class Program {
 public:
  // The built binary, or any command as a shell would find it.
  explicit Program(const std::vector<std::string>& arguments, const std::filesystem::path& folder = ".");
  static std::unique_ptr<Program> command(const std::vector<std::string>& words, const std::filesystem::path& folder);
  ~Program();   // kills it if it still runs
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  pid_t pid() const { return child_; }
  std::vector<pid_t> children() const;     // of the program: the ranks of its launcher
  bool running() const;
  Printed wait(double seconds = 300);      // throws std::runtime_error if it takes longer
  std::string errors_so_far() const;

 private:
  Program();
  void start(const std::vector<std::string>& words, const std::filesystem::path& folder);
  pid_t child_ = -1;
  std::filesystem::path output_, errors_;
};

std::string program_path();   // of the built binary
Printed run_program(const std::vector<std::string>& arguments, const std::filesystem::path& folder = ".");
Printed run_command(const std::vector<std::string>& words, const std::filesystem::path& folder = ".");

// As many ranks as there are lists of arguments, each with its own, in the environment that torchrun gives.
std::vector<Printed> run_ranks(const std::vector<std::vector<std::string>>& arguments, const std::filesystem::path& folder = ".");
// Each rank in a folder of its own, as on hosts that share no disk.
std::vector<Printed> run_ranks(const std::vector<std::vector<std::string>>& arguments, const std::vector<std::filesystem::path>& folders);

// A fresh folder for one test, removed at its end.
class Workplace {
 public:
  Workplace();
  ~Workplace();
  const std::filesystem::path& path() const { return path_; }
  void write(const std::string& name, const std::string& text) const;
  std::string read(const std::string& name) const;

 private:
  std::filesystem::path path_;
};

// Folder `tokenizer`: vocab.json and merges.txt of 257 tokens, one a byte.
void write_byte_tokenizer(const Workplace& place);

}  // namespace ballast::testing
