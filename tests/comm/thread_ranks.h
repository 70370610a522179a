#pragma once
// Runs a function on every thread-rank of a topology and hands back what each threw.
#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "ballast/base/check.h"
#include "ballast/base/error.h"
#include "ballast/comm/communicator.h"

namespace ballast {

// The text of each rank's error, "" where there was none.
inline std::vector<std::string> errors_of_ranks(const Topology& topology,
                                                const std::function<void(Communicator&)>& body,
                                                const CommunicatorOptions& options = {
                                                    std::chrono::milliseconds(20000)}) {
  auto communicators = make_in_process(topology, options);
  std::vector<std::string> errors(communicators.size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < communicators.size(); ++rank) {
    threads.emplace_back([&, rank] {
      set_thread_rank(static_cast<int>(rank));
      try {
        body(*communicators[rank]);
      } catch (const std::exception& error) {
        errors[rank] = error.what();
        communicators[rank]->abort(error.what());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

}  // namespace ballast
