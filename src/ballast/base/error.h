#pragma once
// The one exception type for what a user or the environment got wrong: what, where, found, expected, cure, exit code.
// Broken invariants of our own are BALLAST_CHECK's (check.h).
#include <stdexcept>
#include <string>
#include <utility>

namespace ballast {

// The kind decides the exit code of the process (docs/errors.md).
enum class ErrorKind {
  Internal = 1,     // a broken invariant: our fault
  Usage = 2,        // command line, configuration, an impossible plan
  Data = 3,         // records, token stores, tokenizers, missing input files
  OutOfMemory = 4,  // does not fit: refused before running, or the allocator failed
  PeerLost = 5,     // another rank died, stopped, or disagrees
  CorruptFile = 6,  // weights, checkpoints or stores whose bytes are wrong
  Numerical = 7,    // non-finite loss or gradients
  Environment = 8,  // disk, network, permissions: errno's world
  Interrupted = 130
};

int exit_code(ErrorKind kind);
const char* name_of(ErrorKind kind);

// throw Error(ErrorKind::Data, "record has no such field").at("a.jsonl", "line 3").found("keys a, b").expected("prompt").cure("set data.fields");
class Error : public std::exception {
 public:
  Error(ErrorKind kind, std::string what);
  Error&& at(const std::string& file_or_key, const std::string& place = "") &&;
  Error&& found(std::string text) &&;
  Error&& expected(std::string text) &&;
  Error&& cure(std::string text) &&;
  ErrorKind kind() const { return kind_; }
  const std::string& summary() const { return summary_; }
  const std::string& place() const { return place_; }
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  void compose();
  ErrorKind kind_;
  std::string summary_, place_, found_, expected_, cure_, message_;
};

// errno as text, for messages: "No such file or directory (errno 2)".
std::string errno_text(int error);
// Control characters and invalid bytes shown as \xNN, long texts cut: for names that come from files.
std::string printable(const std::string& text, size_t longest = 120);
size_t edit_distance(const std::string& a, const std::string& b);
// The candidate nearest to `word`, or "" if none is near: for "did you mean".
template <class Container>
std::string nearest(const std::string& word, const Container& candidates) {
  std::string best;
  size_t best_distance = word.size() / 2 + 1;
  for (const auto& candidate : candidates) {
    const size_t distance = edit_distance(word, std::string(candidate));
    if (distance < best_distance) best_distance = distance, best = std::string(candidate);
  }
  return best;
}

}  // namespace ballast
