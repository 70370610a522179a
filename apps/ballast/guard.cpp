#include "ballast/guard.h"

#include <c10/util/Exception.h>

#include <cstdio>
#include <cstring>
#include <new>
#include <string>

#include "ballast/base/check.h"
#include "ballast/base/error.h"
#include "ballast/base/log.h"

namespace ballast::cli {

namespace {

int report(ErrorKind kind, const std::string& message) {
  std::fflush(stdout);
  // As an error line of the log, so that it also stands in the run's log.txt; at level `off` it is still said.
  if (log_level() == LogLevel::Off) {
    std::fprintf(stderr, "ballast: %s\n", message.c_str());
  } else {
    log_line(LogLevel::Error, message);
  }
  return exit_code(kind);
}

int report_out_of_memory(const std::string& what) {
  return report(ErrorKind::OutOfMemory, Error(ErrorKind::OutOfMemory, "the allocator has no more memory")
                                            .found(what)
                                            .cure("smaller batch.micro_tokens, train.recompute=block, or a placement "
                                                  "that shards more; 'ballast plan' shows the sizes")
                                            .what());
}

// libtorch's text without its C++ backtrace.
std::string first_lines(const c10::Error& error) { return error.what_without_backtrace(); }

}  // namespace

int guarded(const std::function<int()>& work) {
  try {
    const int code = work();
    if (std::fflush(stdout) != 0) {
      return report(ErrorKind::Environment, Error(ErrorKind::Environment, "cannot write the result")
                                                .at("standard output")
                                                .found(errno_text(errno))
                                                .what());
    }
    return code;
  } catch (const Error& error) {
    return report(error.kind(), error.what());
  } catch (const std::bad_alloc&) {
    return report_out_of_memory("std::bad_alloc");
  } catch (const c10::OutOfMemoryError& error) {
    return report_out_of_memory(first_lines(error));
  } catch (const c10::Error& error) {
    // The CPU allocator has no exception of its own.
    const std::string text = first_lines(error);
    if (text.find("not enough memory") != std::string::npos || text.find("can't allocate memory") != std::string::npos)
      return report_out_of_memory(text);
    return report(ErrorKind::Internal, "internal error: libtorch: " + text);
  } catch (const std::exception& error) {
    return report(ErrorKind::Internal, std::string("internal error: ") + error.what());
  } catch (...) {
    return report(ErrorKind::Internal, "internal error: an exception without a message");
  }
}

}  // namespace ballast::cli
