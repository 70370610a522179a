#pragma once
// INT, TERM and USR1 (Slurm's warning): the first asks the run to finish its step, save and stop; an INT a second or more
// later ends the process at once.
namespace ballast {

// Installs the handlers while it lives. Rank 0 says on standard error what the first one does.
class SignalWatch {
 public:
  SignalWatch();
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;
};
bool stop_requested();

}  // namespace ballast
