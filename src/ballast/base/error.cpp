#include "ballast/base/error.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <vector>

namespace ballast {

int exit_code(ErrorKind kind) { return static_cast<int>(kind); }

const char* name_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::Internal: return "internal error";
    case ErrorKind::Usage: return "usage error";
    case ErrorKind::Data: return "data error";
    case ErrorKind::OutOfMemory: return "out of memory";
    case ErrorKind::PeerLost: return "peer lost";
    case ErrorKind::CorruptFile: return "corrupt file";
    case ErrorKind::Numerical: return "numerical fault";
    case ErrorKind::Environment: return "environment error";
    case ErrorKind::Interrupted: return "interrupted";
  }
  return "error";
}

Error::Error(ErrorKind kind, std::string what) : kind_(kind), summary_(std::move(what)) { compose(); }

Error&& Error::at(const std::string& file_or_key, const std::string& place) && {
  place_ = place.empty() ? file_or_key : file_or_key + ", " + place;
  compose();
  return std::move(*this);
}
Error&& Error::found(std::string text) && {
  found_ = std::move(text);
  compose();
  return std::move(*this);
}
Error&& Error::expected(std::string text) && {
  expected_ = std::move(text);
  compose();
  return std::move(*this);
}
Error&& Error::cure(std::string text) && {
  cure_ = std::move(text);
  compose();
  return std::move(*this);
}

void Error::compose() {
  message_ = std::string(name_of(kind_)) + ": " + summary_;
  if (!place_.empty()) message_ += "\n  where:    " + place_;
  if (!found_.empty()) message_ += "\n  found:    " + found_;
  if (!expected_.empty()) message_ += "\n  expected: " + expected_;
  if (!cure_.empty()) message_ += "\n  cure:     " + cure_;
}

std::string errno_text(int error) { return std::string(std::strerror(error)) + " (errno " + std::to_string(error) + ")"; }

std::string printable(const std::string& text, size_t longest) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (out.size() >= longest) return out + "...";
    const unsigned char c = static_cast<unsigned char>(text[i]);
    if (c >= 0x20 && c < 0x7f) {
      out += static_cast<char>(c);
    } else {
      char hex[8];
      std::snprintf(hex, sizeof hex, "\\x%02x", c);
      out += hex;
    }
  }
  return out;
}

size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t up = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
      diagonal = up;
    }
  }
  return row[b.size()];
}

}  // namespace ballast
