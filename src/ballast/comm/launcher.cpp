#include "ballast/comm/launcher.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <optional>
#include <random>

#include "ballast/base/error.h"

namespace ballast {

namespace {

using Clock = std::chrono::steady_clock;

Error failed(const char* what) {
  return Error(ErrorKind::Environment, fmt::format("cannot {}", what)).found(errno_text(errno));
}

// Owns a descriptor.
class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd() { reset(); }
  int get() const { return fd_; }
  void reset() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }

 private:
  int fd_;
};

// A socket that listens on a free port of the loopback interface.
Fd listen_somewhere(int& port) {
  Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  if (fd.get() < 0 || bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      listen(fd.get(), 1024) != 0 || getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    throw failed("listen on a free port");
  }
  port = ntohs(address.sin_port);
  return fd;
}

// What a rank prints, cut into lines, each written whole with its prefix; log lines have it already.
class LinePrefixer {
 public:
  LinePrefixer(Fd from, int to, int rank) : from_(std::move(from)), to_(to), prefix_(fmt::format("[rank {}] ", rank)) {}
  int fd() const { return from_.get(); }
  // False at the end of the stream.
  bool pump() {
    char buffer[16384];
    const ssize_t got = read(from_.get(), buffer, sizeof buffer);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return true;
    if (got <= 0) {
      if (!line_.empty()) emit();
      from_.reset();
      return false;
    }
    for (ssize_t i = 0; i < got; ++i) {
      if (buffer[i] == '\n') {
        emit();
      } else {
        line_ += buffer[i];
      }
    }
    return true;
  }

 private:
  void emit() {
    const std::string text = (line_.starts_with(prefix_) ? "" : prefix_) + line_ + "\n";
    line_.clear();
    for (size_t written = 0; written < text.size();) {
      const ssize_t count = write(to_, text.data() + written, text.size() - written);
      if (count < 0 && errno != EINTR) return;  // our own output is gone: the ranks run on
      if (count > 0) written += static_cast<size_t>(count);
    }
  }

  Fd from_;
  int to_;
  std::string prefix_, line_;
};

struct Child {
  pid_t pid = -1;
  bool running = true;
};

class Launcher {
 public:
  Launcher(int ranks, const std::vector<std::string>& arguments, const LaunchOptions& options) : options_(options) {
    sigset_t watched;
    sigemptyset(&watched);
    for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGCHLD}) sigaddset(&watched, signal);
    sigprocmask(SIG_BLOCK, &watched, &old_mask_);
    signals_ = Fd(signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK));
    if (signals_.get() < 0) throw failed("watch signals");
    int port = 0;
    const Fd listener = listen_somewhere(port);
    const std::string run_id = fmt::format(
        "{:016x}{:08x}", (static_cast<uint64_t>(std::random_device{}()) << 32) | std::random_device{}(), getpid());
    try {
      for (int rank = 0; rank < ranks; ++rank) spawn(rank, ranks, arguments, port, run_id, listener);
    } catch (...) {
      end_all(SIGKILL);
      throw;
    }
  }
  ~Launcher() { sigprocmask(SIG_SETMASK, &old_mask_, nullptr); }

  int run() {
    while (running() > 0 || !outputs_.empty()) {
      std::vector<pollfd> polled{{signals_.get(), POLLIN, 0}};
      for (const LinePrefixer& output : outputs_) polled.push_back({output.fd(), POLLIN, 0});
      poll(polled.data(), polled.size(), timeout_ms());
      if (polled[0].revents != 0) take_signals();
      size_t kept = 0;
      for (size_t i = 0; i < outputs_.size(); ++i) {
        if (polled[i + 1].revents != 0 && !outputs_[i].pump()) continue;
        if (kept != i) outputs_[kept] = std::move(outputs_[i]);
        ++kept;
      }
      outputs_.erase(outputs_.begin() + static_cast<std::ptrdiff_t>(kept), outputs_.end());
      escalate();
      // A grandchild may hold a pipe open for ever: once all ranks are gone, what is still in the pipes is all that is
      // waited for.
      if (running() == 0 && !outputs_.empty() && drained_at_ == Clock::time_point{})
        drained_at_ = Clock::now() + std::chrono::seconds(1);
      if (running() == 0 && drained_at_ != Clock::time_point{} && Clock::now() >= drained_at_) break;
    }
    return own_failure_.value_or(loss_.value_or(0));
  }

 private:
  void spawn(int rank, int ranks, const std::vector<std::string>& arguments, int port, const std::string& run_id,
             const Fd& listener) {
    std::vector<std::string> environment;
    for (char** entry = environ; *entry != nullptr; ++entry) {
      const std::string name = std::string(*entry).substr(0, std::string(*entry).find('='));
      const bool ours = name == "RANK" || name == "WORLD_SIZE" || name == "LOCAL_RANK" || name == "LOCAL_WORLD_SIZE" ||
                        name == "MASTER_ADDR" || name == "MASTER_PORT" || name == "BALLAST_RUN_ID" ||
                        name == "BALLAST_LISTEN_FD" || name == "TORCHELASTIC_USE_AGENT_STORE";
      if (!ours) environment.push_back(*entry);
    }
    const auto set = [&](const char* name, const std::string& value) {
      environment.push_back(std::string(name) + "=" + value);
    };
    set("RANK", std::to_string(rank));
    set("WORLD_SIZE", std::to_string(ranks));
    set("LOCAL_RANK", std::to_string(rank));
    set("LOCAL_WORLD_SIZE", std::to_string(ranks));
    set("MASTER_ADDR", "127.0.0.1");
    set("MASTER_PORT", std::to_string(port));
    set("BALLAST_RUN_ID", run_id);
    if (rank == 0) set("BALLAST_LISTEN_FD", std::to_string(listener.get()));
    std::vector<std::string> words{program_invocation_name};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv, envp;
    for (std::string& word : words) argv.push_back(word.data());
    for (std::string& entry : environment) envp.push_back(entry.data());
    argv.push_back(nullptr);
    envp.push_back(nullptr);

    int out[2] = {-1, -1}, err[2] = {-1, -1}, exec_error[2] = {-1, -1};
    if (rank > 0 && (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0)) throw failed("make pipes");
    if (pipe2(exec_error, O_CLOEXEC) != 0) throw failed("make pipes");
    const pid_t parent = getpid();
    const pid_t pid = fork();
    if (pid < 0) throw failed("start a process");
    if (pid == 0) {  // only calls that are safe after fork
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(5);
      sigprocmask(SIG_SETMASK, &old_mask_, nullptr);
      if (rank > 0) {
        const int null = open("/dev/null", O_RDONLY);
        dup2(null, 0);
        dup2(out[1], 1);
        dup2(err[1], 2);
      } else {
        fcntl(listener.get(), F_SETFD, 0);
      }
      execve("/proc/self/exe", argv.data(), envp.data());
      const int error = errno;
      if (write(exec_error[1], &error, sizeof error) < 0) _exit(126);
      _exit(127);
    }
    close(exec_error[1]);
    children_.push_back({pid, true});
    if (rank > 0) {
      close(out[1]);
      close(err[1]);
      outputs_.emplace_back(Fd(out[0]), STDOUT_FILENO, rank);
      outputs_.emplace_back(Fd(err[0]), STDERR_FILENO, rank);
    }
    int error = 0;
    const ssize_t got = read(exec_error[0], &error, sizeof error);
    close(exec_error[0]);
    if (got == static_cast<ssize_t>(sizeof error)) {
      errno = error;
      throw failed("start this program again");
    }
  }

  int running() const {
    int count = 0;
    for (const Child& child : children_) count += child.running;
    return count;
  }

  void end_all(int signal) {
    for (const Child& child : children_) {
      if (child.running) kill(child.pid, signal);
    }
  }

  void take_signals() {
    signalfd_siginfo info;
    while (read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
      if (info.ssi_signo == SIGCHLD) continue;
      // Ctrl-C reaches the ranks by itself: they are in the terminal's foreground group as we are.
      const bool from_terminal = info.ssi_signo == SIGINT && info.ssi_code == SI_KERNEL;
      if (!from_terminal) end_all(static_cast<int>(info.ssi_signo));
    }
    reap();
  }

  void reap() {
    for (size_t rank = 0; rank < children_.size(); ++rank) {
      Child& child = children_[rank];
      int status = 0;
      if (!child.running || waitpid(child.pid, &status, WNOHANG) != child.pid) continue;
      child.running = false;
      const bool we_ended_it = terminated_at_.has_value();
      if (WIFSIGNALED(status)) {
        if (we_ended_it) continue;
        say(fmt::format("rank {} was killed by signal {} ({})", rank, WTERMSIG(status), strsignal(WTERMSIG(status))));
        failure(exit_code(ErrorKind::PeerLost), true);
      } else if (WEXITSTATUS(status) != 0) {
        if (!we_ended_it) say(fmt::format("rank {} ended with exit code {}", rank, WEXITSTATUS(status)));
        failure(WEXITSTATUS(status), WEXITSTATUS(status) != exit_code(ErrorKind::PeerLost));
      }
    }
  }

  void failure(int code, bool own) {
    if (!failed_at_) failed_at_ = Clock::now();
    std::optional<int>& slot = own && !terminated_at_ ? own_failure_ : loss_;
    if (!slot) slot = code;
  }

  // After the first failure: wait `settle` for the others to end by themselves, then SIGTERM, then SIGKILL.
  void escalate() {
    const auto now = Clock::now();
    if (!failed_at_ || running() == 0) return;
    if (!terminated_at_ && now >= *failed_at_ + options_.settle) {
      terminated_at_ = now;
      end_all(SIGTERM);
      end_all(SIGCONT);  // a stopped rank must be running to end
    }
    if (terminated_at_ && !killed_ && now >= *terminated_at_ + options_.grace) {
      killed_ = true;
      end_all(SIGKILL);
    }
  }

  int timeout_ms() const { return failed_at_ || running() == 0 ? 50 : -1; }

  static void say(const std::string& text) {
    const std::string line = "ballast: " + text + "\n";
    if (write(STDERR_FILENO, line.data(), line.size()) < 0) return;
  }

  LaunchOptions options_;
  sigset_t old_mask_;
  Fd signals_;
  std::vector<Child> children_;
  std::vector<LinePrefixer> outputs_;
  std::optional<int> own_failure_, loss_;
  std::optional<Clock::time_point> failed_at_, terminated_at_;
  Clock::time_point drained_at_{};
  bool killed_ = false;
};

}  // namespace

int launch(int ranks, const std::vector<std::string>& arguments, const LaunchOptions& options) {
  std::fflush(nullptr);
  return Launcher(ranks, arguments, options).run();
}

}  // namespace ballast
