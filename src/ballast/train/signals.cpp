#include "ballast/train/signals.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "ballast/base/check.h"
#include "ballast/base/clock.h"
#include "ballast/base/error.h"

namespace ballast {

namespace {

// A sender may reach a process twice for one request, by itself and through the launcher or the group (`timeout`, batch systems).
constexpr double kOneRequestS = 1;
std::atomic<double> first_s{0};   // of the first request; 0: none
static_assert(std::atomic<double>::is_always_lock_free);   // written in a handler
bool speaks = true, on_terminal = false;
constexpr int kSignals[] = {SIGINT, SIGTERM, SIGUSR1};
struct sigaction former[3];

void handle(int signal) {
  const double now = monotonic_seconds();
  double before = 0;
  const bool first = first_s.compare_exchange_strong(before, now);
  if (!first && signal == SIGINT && now - before >= kOneRequestS) _exit(exit_code(ErrorKind::Interrupted));
  if (first && speaks) {
    // On a terminal it starts below the ^C that the terminal echoes into the updating line.
    constexpr char message[] = "\nstopping after this step (interrupt again to end at once)\n";
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, message + (on_terminal ? 0 : 1), sizeof message - (on_terminal ? 1 : 2));
  }
}

}  // namespace

SignalWatch::SignalWatch() {
  first_s = 0;
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

bool stop_requested() { return first_s > 0; }

}  // namespace ballast
