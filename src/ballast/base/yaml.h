#pragma once
// A YAML document as an ordered tree whose every node knows its place in the file. Reads one document of untrusted text
// within limits; meaning (keys, types, units) is config.h's.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ballast/base/error.h"

namespace ballast {

// Where a node was written. Line and column count from 1; line 0 means that `source` says it all (a command-line
// argument).
struct Mark {
  std::shared_ptr<const std::string> source;
  int64_t line = 0, column = 0;
  std::string text() const;       // "a.yaml:3:7", "command line 'optimizer.lr=fast'"
  std::string line_text() const;  // "a.yaml:3"
};

struct YamlEntry;

struct YamlNode {
  enum class Kind : uint8_t { Null, Scalar, List, Map };
  Kind kind = Kind::Null;
  bool quoted = false;  // scalars: written in quotes or as a block
  std::string scalar;
  std::vector<YamlNode> items;     // List
  std::vector<YamlEntry> entries;  // Map, in the order of the file; keys are unique
  Mark mark;

  bool is_null() const { return kind == Kind::Null; }
  bool is_scalar() const { return kind == Kind::Scalar; }
  bool is_list() const { return kind == Kind::List; }
  bool is_map() const { return kind == Kind::Map; }
  const YamlNode* find(std::string_view key) const;  // the value of a key of a map, or nullptr
  YamlNode* find(std::string_view key);
  std::string describe() const;  // for "found": "the text 'fast'", "a list of 3", "a map with keys a, b", "nothing"
};

struct YamlEntry {
  std::string key;
  Mark mark;  // of the key
  YamlNode value;
};

struct YamlLimits {
  size_t bytes = 1 << 20;
  int64_t nodes = 50'000;  // after aliases are expanded
  int depth = 32;
};

// Throws Error(Usage) at source:line:column for syntax, invalid UTF-8, control characters, duplicate keys, keys that
// are not plain text, tags, recursive aliases, several documents, and anything over the limits. Empty text gives a Null
// node. one_line: marks carry the source only (command-line arguments).
YamlNode parse_yaml(std::string_view text, const std::string& source, bool one_line = false,
                    const YamlLimits& limits = {});

// The node in flow style on one line, such that parse_yaml gives the same tree back: "{pair: 2, node: 2}".
std::string flow_text(const YamlNode& node);
// A scalar as YAML: plain where that is safe, else in double quotes.
std::string scalar_text(const std::string& text, bool quoted = false);

}  // namespace ballast
