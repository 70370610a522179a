#pragma once
// What the ranks of a world know about its end: the first failure that anybody noticed, told to all.
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ballast/base/error.h"

namespace ballast {

struct Failure {
  int64_t rank;     // whose fault it is
  int64_t told_by;  // who noticed
  std::string reason;
};

class FailureChannel {
 public:
  virtual ~FailureChannel() = default;
  // Makes a failure known to every rank. The first one stands, later ones are dropped. Returns soon even if the world
  // is broken.
  virtual void announce(const Failure& failure) noexcept = 0;
  // The failure that stands, once this rank has heard of it.
  virtual std::optional<Failure> known() const = 0;
  // Waits up to `patience` for a failure that another rank announced: one that lost its connection asks this before it
  // blames its neighbour.
  virtual std::optional<Failure> await(std::chrono::milliseconds patience) = 0;
  // The ranks that show no sign of life; may take two seconds. Empty if all live or the back end cannot know.
  virtual std::vector<int64_t> silent() = 0;
  // Called once from any thread as soon as a failure is known: interrupts what is waiting.
  virtual void on_failure(std::function<void()> interrupt) = 0;
};

}  // namespace ballast
