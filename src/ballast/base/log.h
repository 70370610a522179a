#pragma once
// Messages for people: to standard error and, once a run folder is known, to its log.txt, each line with its rank.
// Rank 0 speaks for all: the information of other ranks counts as debug. Results belong on standard output, never here.
#include <fmt/format.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace ballast {

enum class LogLevel : uint8_t { Debug, Info, Warning, Error, Off };
// Throws Error(Usage) for an unknown name, with the list.
LogLevel parse_log_level(const std::string& name);
std::vector<std::string> log_level_names();

void set_log_level(LogLevel level);
LogLevel log_level();
// Appends every line that passes the level to `path` too, first those (at most 1000) that were said while none was open. Throws Error(Environment).
void open_log_file(const std::filesystem::path& path);
void close_log_file();

// A line of this thread's rank (base/check.h). Control characters other than newlines are shown as \xNN.
void log_line(LogLevel level, std::string_view message);

template <class... Arguments>
void log_debug(fmt::format_string<Arguments...> text, Arguments&&... arguments) {
  log_line(LogLevel::Debug, fmt::format(text, std::forward<Arguments>(arguments)...));
}
template <class... Arguments>
void log_info(fmt::format_string<Arguments...> text, Arguments&&... arguments) {
  log_line(LogLevel::Info, fmt::format(text, std::forward<Arguments>(arguments)...));
}
template <class... Arguments>
void log_warning(fmt::format_string<Arguments...> text, Arguments&&... arguments) {
  log_line(LogLevel::Warning, fmt::format(text, std::forward<Arguments>(arguments)...));
}
template <class... Arguments>
void log_error(fmt::format_string<Arguments...> text, Arguments&&... arguments) {
  log_line(LogLevel::Error, fmt::format(text, std::forward<Arguments>(arguments)...));
}

}  // namespace ballast
