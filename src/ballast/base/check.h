#pragma once
// BALLAST_CHECK: a broken invariant of our own code. User and environment errors are Error's (error.h).
#include <fmt/format.h>

#include <string>

namespace ballast {

// Throws Error(Internal) naming file, line, the condition, the message and this thread's rank.
[[noreturn]] void check_failed(const char* file, int line, const char* condition, const std::string& message);
// The rank that messages of this thread carry; -1 means none.
void set_thread_rank(int rank);
int thread_rank();

}  // namespace ballast

// BALLAST_CHECK(a == b, "{} != {}", a, b)
#define BALLAST_CHECK(condition, ...)                                                                        \
  do {                                                                                                       \
    if (!(condition)) ::ballast::check_failed(__FILE__, __LINE__, #condition, ::fmt::format("" __VA_ARGS__)); \
  } while (false)
