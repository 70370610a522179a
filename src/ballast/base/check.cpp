#include "ballast/base/check.h"

#include "ballast/base/error.h"

namespace ballast {

namespace {
thread_local int rank_of_thread = -1;
}

void set_thread_rank(int rank) { rank_of_thread = rank; }
int thread_rank() { return rank_of_thread; }

void check_failed(const char* file, int line, const char* condition, const std::string& message) {
  std::string path = file;
  const size_t source = path.rfind("src/ballast/");
  if (source != std::string::npos) path = path.substr(source);
  std::string where = fmt::format("{}:{}", path, line);
  if (rank_of_thread >= 0) where += fmt::format(", rank {}", rank_of_thread);
  throw Error(ErrorKind::Internal, fmt::format("check failed: {} {}", condition, message))
      .at(where)
      .cure("this is a fault of Ballast: please report it with this message");
}

}  // namespace ballast
