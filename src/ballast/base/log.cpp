#include "ballast/base/log.h"

#include <spdlog/details/log_msg_buffer.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <mutex>

#include "ballast/base/check.h"
#include "ballast/base/error.h"

namespace ballast {

namespace {

constexpr const char* kNames[] = {"debug", "info", "warning", "error", "off"};

spdlog::level::level_enum spdlog_level(LogLevel level) {
  switch (level) {
    case LogLevel::Debug:
      return spdlog::level::debug;
    case LogLevel::Info:
      return spdlog::level::info;
    case LogLevel::Warning:
      return spdlog::level::warn;
    case LogLevel::Error:
      return spdlog::level::err;
    case LogLevel::Off:
      return spdlog::level::off;
  }
  return spdlog::level::off;
}

constexpr size_t kKeptBeforeFile = 1000;

struct Sinks {
  std::mutex mutex;
  LogLevel level = LogLevel::Info;
  std::shared_ptr<spdlog::sinks::sink> terminal = std::make_shared<spdlog::sinks::stderr_color_sink_mt>();
  std::shared_ptr<spdlog::sinks::sink> file;
  std::vector<spdlog::details::log_msg_buffer> before_file;   // said while no file was open, at most kKeptBeforeFile
  Sinks() { terminal->set_pattern("%^%v%$"); }
};

// Never destroyed: threads may log while the process ends.
Sinks& sinks() {
  static Sinks* instance = new Sinks;
  return *instance;
}

std::string safe(std::string_view message) {
  std::string out;
  for (const char c : message) {
    const unsigned char byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

std::vector<std::string> log_level_names() { return {std::begin(kNames), std::end(kNames)}; }

LogLevel parse_log_level(const std::string& name) {
  const std::vector<std::string> names = log_level_names();
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) {
    const std::string near = nearest(name, names);
    throw Error(ErrorKind::Usage, "unknown log level")
        .found("'" + printable(name) + "'")
        .expected(fmt::format("one of {}", fmt::join(names, ", ")))
        .cure(near.empty() ? "" : "did you mean '" + near + "'?");
  }
  return static_cast<LogLevel>(found - names.begin());
}

void set_log_level(LogLevel level) {
  std::lock_guard lock(sinks().mutex);
  sinks().level = level;
}

LogLevel log_level() {
  std::lock_guard lock(sinks().mutex);
  return sinks().level;
}

void open_log_file(const std::filesystem::path& path) {
  std::shared_ptr<spdlog::sinks::sink> file;
  try {
    file = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path.string(), false);
  } catch (const spdlog::spdlog_ex& error) {
    throw Error(ErrorKind::Environment, "cannot open the log file")
        .at(printable(path.string(), 400))
        .found(error.what());
  }
  file->set_pattern("%Y-%m-%d %H:%M:%S.%e %l %v");
  std::lock_guard lock(sinks().mutex);
  for (const auto& record : sinks().before_file) file->log(record);
  file->flush();
  sinks().before_file.clear();
  sinks().file = std::move(file);
}

void close_log_file() {
  std::lock_guard lock(sinks().mutex);
  sinks().file.reset();
  sinks().before_file.clear();
}

void log_line(LogLevel level, std::string_view message) {
  const int rank = thread_rank();
  if (rank > 0 && level == LogLevel::Info) level = LogLevel::Debug;
  Sinks& out = sinks();
  std::lock_guard lock(out.mutex);
  if (level == LogLevel::Off || level < out.level) return;
  std::string line = safe(message);
  // Errors say their kind themselves.
  if (level == LogLevel::Warning) line = "warning: " + line;
  if (rank >= 0) line = fmt::format("[rank {}] {}", rank, line);
  const spdlog::details::log_msg record("", spdlog_level(level), spdlog::string_view_t(line.data(), line.size()));
  out.terminal->log(record);
  out.terminal->flush();
  if (out.file) {
    out.file->log(record);
    out.file->flush();
  } else if (out.before_file.size() < kKeptBeforeFile) {
    out.before_file.emplace_back(record);
  }
}

}  // namespace ballast
