#include "ballast/train/signals.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>

#include "ballast/base/check.h"
#include "ballast/base/error.h"

namespace ballast {

namespace {

// A sender may reach a process twice for one request, by itself and through the launcher or the group (`timeout`, batch systems).
constexpr int64_t kOneRequestMs = 1000;
std::atomic<int> requests{0};
std::atomic<int64_t> first_ms{0};
bool speaks = true, on_terminal = false;
constexpr int kSignals[] = {SIGINT, SIGTERM, SIGUSR1};
struct sigaction former[3];

int64_t now_ms() {   // safe in a handler
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{1000} * now.tv_sec + now.tv_nsec / 1000000;
}

void handle(int signal) {
  const int64_t now = now_ms();
  int64_t first = 0;   // becomes the time of the first request
  if (first_ms.compare_exchange_strong(first, now)) first = now;
  const int before = requests.fetch_add(1);
  if (before > 0 && signal == SIGINT && now - first >= kOneRequestMs) _exit(exit_code(ErrorKind::Interrupted));
  if (before == 0 && speaks) {
    // On a terminal it starts below the ^C that the terminal echoes into the updating line.
    constexpr char message[] = "\nstopping after this step (interrupt again to end at once)\n";
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, message + (on_terminal ? 0 : 1), sizeof message - (on_terminal ? 1 : 2));
  }
}

}  // namespace

SignalWatch::SignalWatch() {
  requests = 0;
  first_ms = 0;
  speaks = thread_rank() <= 0;
  on_terminal = isatty(STDERR_FILENO) == 1;
  struct sigaction action;
  std::memset(&action, 0, sizeof action);
  action.sa_handler = handle;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < 3; ++i) sigaction(kSignals[i], &action, &former[i]);
}

SignalWatch::~SignalWatch() {
  for (size_t i = 0; i < 3; ++i) sigaction(kSignals[i], &former[i], nullptr);
}

bool stop_requested() { return requests.load() > 0; }

}  // namespace ballast
