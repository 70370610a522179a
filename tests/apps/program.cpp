#include "tests/apps/program.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <thread>

namespace ballast::testing {

namespace {

std::filesystem::path fresh_path(const std::string& suffix) {
  static std::atomic<int> count{0};
  return std::filesystem::temp_directory_path() / ("ballast_test." + std::to_string(::getpid()) + "." + std::to_string(count++) + suffix);
}

std::string content(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

int free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  const bool named = ::bind(fd, reinterpret_cast<sockaddr*>(&address), length) == 0 && ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0;
  ::close(fd);
  if (!named) throw std::runtime_error("there is no free port");
  return ntohs(address.sin_port);
}

}  // namespace

std::string program_path() { return std::filesystem::absolute(BALLAST_BINARY).lexically_normal().string(); }

Program::Program() : output_(fresh_path(".out")), errors_(fresh_path(".err")) {}

Program::Program(const std::vector<std::string>& arguments, const std::filesystem::path& folder) : Program() {
  std::vector<std::string> words{program_path()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  start(words, folder);
}

std::unique_ptr<Program> Program::command(const std::vector<std::string>& words, const std::filesystem::path& folder) {
  std::unique_ptr<Program> program(new Program());
  program->start(words, folder);
  return program;
}

void Program::start(const std::vector<std::string>& words, const std::filesystem::path& folder) {
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  child_ = ::fork();
  if (child_ < 0) throw std::runtime_error("fork failed");
  if (child_ == 0) {
    const int out = ::open(output_.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600), err = ::open(errors_.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600);
    if (out < 0 || err < 0 || ::chdir(folder.c_str()) != 0 || ::dup2(out, 1) < 0 || ::dup2(err, 2) < 0) ::_exit(126);
    ::execvp(argv[0], argv.data());
    ::_exit(127);
  }
}

Program::~Program() {
  if (child_ > 0) {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }
  std::error_code ignored;
  std::filesystem::remove(output_, ignored);
  std::filesystem::remove(errors_, ignored);
}

bool Program::running() const {
  siginfo_t info{};
  return child_ > 0 && ::waitid(P_PID, static_cast<id_t>(child_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0;
}

std::vector<pid_t> Program::children() const {
  std::istringstream list(content("/proc/" + std::to_string(child_) + "/task/" + std::to_string(child_) + "/children"));
  std::vector<pid_t> pids;
  for (pid_t pid = 0; list >> pid;) pids.push_back(pid);
  return pids;
}

std::string Program::errors_so_far() const { return content(errors_); }

Printed Program::wait(double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (running()) {
    if (std::chrono::steady_clock::now() > end) throw std::runtime_error("the program did not end; it said:\n" + content(errors_));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  int status = 0;
  ::waitpid(child_, &status, 0);
  child_ = -1;
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), content(output_), content(errors_)};
}

Printed run_program(const std::vector<std::string>& arguments, const std::filesystem::path& folder) { return Program(arguments, folder).wait(); }
Printed run_command(const std::vector<std::string>& words, const std::filesystem::path& folder) { return Program::command(words, folder)->wait(); }

std::vector<Printed> run_ranks(const std::vector<std::vector<std::string>>& arguments, const std::filesystem::path& folder) {
  return run_ranks(arguments, std::vector<std::filesystem::path>(arguments.size(), folder));
}

std::vector<Printed> run_ranks(const std::vector<std::vector<std::string>>& arguments, const std::vector<std::filesystem::path>& folders) {
  const std::string ranks = std::to_string(arguments.size()), port = std::to_string(free_port());
  const std::pair<const char*, std::string> common[] = {{"WORLD_SIZE", ranks}, {"LOCAL_WORLD_SIZE", ranks}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", port}};
  std::vector<std::unique_ptr<Program>> programs;
  for (const auto& [name, value] : common) ::setenv(name, value.c_str(), 1);
  for (size_t rank = 0; rank < arguments.size(); ++rank) {
    for (const char* name : {"RANK", "LOCAL_RANK"}) ::setenv(name, std::to_string(rank).c_str(), 1);
    programs.push_back(std::make_unique<Program>(arguments[rank], folders[rank]));
  }
  for (const char* name : {"RANK", "LOCAL_RANK"}) ::unsetenv(name);
  for (const auto& [name, value] : common) ::unsetenv(name);
  std::vector<Printed> printed;
  for (const auto& program : programs) printed.push_back(program->wait());
  return printed;
}

Workplace::Workplace() : path_(fresh_path("")) { std::filesystem::create_directories(path_); }
Workplace::~Workplace() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}
void Workplace::write(const std::string& name, const std::string& text) const {
  std::ofstream file(path_ / name, std::ios::binary);
  file << text;
}
std::string Workplace::read(const std::string& name) const { return content(path_ / name); }

void write_byte_tokenizer(const Workplace& place) {
  std::filesystem::create_directories(place.path() / "tokenizer");
  nlohmann::json vocab;
  int id = 0;
  // The byte-level alphabet: printable bytes stand for themselves, the others for code points from 256 up.
  int shifted = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    const int point = printable ? byte : shifted++;
    std::string text;
    if (point < 0x80) {
      text = static_cast<char>(point);
    } else {
      text = {static_cast<char>(0xC0 | (point >> 6)), static_cast<char>(0x80 | (point & 0x3F))};
    }
    vocab[text] = id++;
  }
  vocab["<|endoftext|>"] = id;
  place.write("tokenizer/vocab.json", vocab.dump());
  place.write("tokenizer/merges.txt", "#version: 0.2\n");
}

}  // namespace ballast::testing
