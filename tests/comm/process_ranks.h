#pragma once
// Starts this test program as several ranks, waits for them, and hands back how each ended and what it printed.
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace ballast {

// A socket bound to a free loopback port, listening if asked to.
inline int take_port(int& port, bool listening) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address);
  if (listening) listen(fd, 8);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length);
  port = ntohs(address.sin_port);
  return fd;
}

struct Ended {
  int code = -1;     // exit code, or -signal
  std::string text;  // standard output and error
  bool in_time = true;
};

class ProcessRank {
 public:
  ProcessRank(const std::string& role, const std::map<std::string, std::string>& extra) {
    static std::atomic<int> next{0};
    path_ = "/tmp/ballast_test_" + std::to_string(getpid()) + "_" + std::to_string(next++) + ".out";
    std::vector<std::string> environment;
    for (char** entry = environ; *entry != nullptr; ++entry) environment.push_back(*entry);
    for (const auto& [name, value] : extra) environment.push_back(name + "=" + value);
    std::vector<std::string> words{"test_comm", "--role", role};
    std::vector<char*> argv, envp;
    for (std::string& word : words) argv.push_back(word.data());
    for (std::string& entry : environment) envp.push_back(entry.data());
    argv.push_back(nullptr);
    envp.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, argv.data(), envp.data());
    posix_spawn_file_actions_destroy(&actions);
  }
  pid_t pid() const { return pid_; }
  std::string text() const {
    std::stringstream text;
    text << std::ifstream(path_).rdbuf();
    return text.str();
  }

  Ended wait(std::chrono::steady_clock::time_point until) {
    Ended out;
    int status = 0;
    while (waitpid(pid_, &status, WNOHANG) != pid_) {
      if (std::chrono::steady_clock::now() > until) {
        out.in_time = false;
        kill(pid_, SIGKILL);
        waitpid(pid_, &status, 0);
        break;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    out.code = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
    out.text = text();
    unlink(path_.c_str());
    return out;
  }

 private:
  pid_t pid_ = -1;
  std::string path_;
};

// `ranks` processes in one role. `absent` is not started; `stopped` is expected to stop itself and is killed once the
// others have ended.
inline std::vector<Ended> run_processes(int ranks, const std::string& role, int absent = -1, int stopped = -1,
                                        const std::string& route = "auto") {
  int port = 0;
  const int fd = take_port(port, false);
  close(fd);
  std::vector<std::pair<int, ProcessRank>> started;
  for (int rank = 0; rank < ranks; ++rank) {
    if (rank == absent) continue;
    started.emplace_back(rank, ProcessRank(role, {{"RANK", std::to_string(rank)},
                                                  {"BALLAST_TEST_ROUTE", route},
                                                  {"WORLD_SIZE", std::to_string(ranks)},
                                                  {"LOCAL_RANK", std::to_string(rank)},
                                                  {"LOCAL_WORLD_SIZE", std::to_string(ranks)},
                                                  {"MASTER_ADDR", "127.0.0.1"},
                                                  {"MASTER_PORT", std::to_string(port)}}));
  }
  std::vector<Ended> ended(static_cast<size_t>(ranks));
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(90);  // only a guard against hanging
  for (auto& [rank, process] : started) {
    if (rank != stopped) ended[static_cast<size_t>(rank)] = process.wait(until);
  }
  for (auto& [rank, process] : started) {
    if (rank != stopped) continue;
    kill(process.pid(), SIGKILL);
    ended[static_cast<size_t>(rank)] = process.wait(until);
  }
  return ended;
}

}  // namespace ballast
