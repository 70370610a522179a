#include "ballast/base/yaml.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <sstream>
#include <unordered_map>
#include <unordered_set>

namespace ballast {

namespace {

// The parser takes the end of the text for the end of a quote. A last line that is a comment, but inside a quote is
// not, tells the two apart; its control character cannot stand in the text itself.
constexpr const char* kEnd = "#\x01";

// Builds the tree from the parser's events: a YAML::Node would lose the duplicates and the sharing of aliases.
class TreeBuilder : public YAML::EventHandler {
 public:
  TreeBuilder(std::shared_ptr<const std::string> source, bool one_line, const YamlLimits& limits)
      : source_(std::move(source)), one_line_(one_line), limits_(limits) {}

  YamlNode take_root() { return std::move(root_); }
  Mark mark_of(const YAML::Mark& mark) const {
    return one_line_ ? Mark{source_, 0, 0}
                     : Mark{source_, static_cast<int64_t>(mark.line) + 1, static_cast<int64_t>(mark.column) + 1};
  }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    YamlNode node;
    node.mark = mark_of(mark);
    count(node.mark, 1);
    add(std::move(node), anchor);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end()) refuse(mark_of(mark), "an alias inside the node that it names");
    count(mark_of(mark), 1 + count_inside(found->second));
    add(found->second, 0);
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    check_tag(mark, tag);
    if (value.find(kEnd) != std::string::npos) refuse(mark_of(mark), "not valid YAML: a quote that is not closed");
    YamlNode node;
    node.kind = YamlNode::Kind::Scalar;
    node.quoted = tag == "!";
    node.scalar = value;
    node.mark = mark_of(mark);
    count(node.mark, 1);
    add(std::move(node), anchor);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, YamlNode::Kind::List);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, YamlNode::Kind::Map);
  }
  void OnMapEnd() override { close(); }

 private:
  struct Open {
    YamlNode node;
    YAML::anchor_t anchor = 0;
    bool has_key = false;
    std::string key;
    Mark key_mark;
    std::unordered_map<std::string, std::string> seen;  // key -> line where it was written first
  };

  [[noreturn]] static void refuse(const Mark& mark, const std::string& what, const std::string& cure = "") {
    throw Error(ErrorKind::Usage, what).at(mark.text()).cure(cure);
  }
  void check_tag(const YAML::Mark& mark, const std::string& tag) const {
    if (tag.empty() || tag == "?" || tag == "!") return;
    refuse(mark_of(mark), fmt::format("the YAML tag '{}' has no meaning here", printable(tag)), "remove it");
  }
  void open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YamlNode::Kind kind) {
    check_tag(mark, tag);
    if (static_cast<int>(open_.size()) >= limits_.depth)
      refuse(mark_of(mark), fmt::format("nested deeper than {} levels", limits_.depth));
    Open frame;
    frame.node.kind = kind;
    frame.node.mark = mark_of(mark);
    frame.anchor = anchor;
    count(frame.node.mark, 1);
    open_.push_back(std::move(frame));
  }
  void close() {
    Open frame = std::move(open_.back());
    open_.pop_back();
    add(std::move(frame.node), frame.anchor);
  }
  static int64_t count_inside(const YamlNode& node) {
    int64_t count = 0;
    for (const YamlNode& item : node.items) count += 1 + count_inside(item);
    for (const YamlEntry& entry : node.entries) count += 1 + count_inside(entry.value);
    return count;
  }
  void count(const Mark& mark, int64_t more) {
    count_ += more;
    if (count_ > limits_.nodes) {
      refuse(mark, fmt::format("more than {} values", limits_.nodes), "aliases count as often as they are used");
    }
  }
  void add(YamlNode node, YAML::anchor_t anchor) {
    if (anchor != 0) anchors_[anchor] = node;
    if (open_.empty()) {
      root_ = std::move(node);
      return;
    }
    Open& parent = open_.back();
    if (parent.node.is_list()) {
      parent.node.items.push_back(std::move(node));
    } else if (!parent.has_key) {
      if (!node.is_scalar()) refuse(node.mark, "a key must be a plain word, found " + node.describe());
      const auto [earlier, fresh] = parent.seen.emplace(node.scalar, node.mark.line_text());
      if (!fresh) {
        refuse(node.mark, fmt::format("the key '{}' is written twice", printable(node.scalar)),
               "keep one of them; the first is at " + earlier->second);
      }
      parent.has_key = true;
      parent.key = node.scalar;
      parent.key_mark = node.mark;
    } else {
      parent.has_key = false;
      parent.node.entries.push_back(YamlEntry{std::move(parent.key), std::move(parent.key_mark), std::move(node)});
    }
  }

  std::shared_ptr<const std::string> source_;
  bool one_line_;
  YamlLimits limits_;
  int64_t count_ = 0;
  std::vector<Open> open_;
  std::unordered_map<YAML::anchor_t, YamlNode> anchors_;
  YamlNode root_;
};

// The parser takes byte 4 for the end of its input and replaces broken UTF-8: neither may pass silently.
void check_characters(std::string_view text, const std::shared_ptr<const std::string>& source, bool one_line) {
  Mark mark{source, one_line ? 0 : 1, one_line ? 0 : 1};
  for (size_t i = 0; i < text.size();) {
    const unsigned char c = static_cast<unsigned char>(text[i]);
    size_t length = c < 0x80                ? 1
                    : c >= 0xc2 && c < 0xe0 ? 2
                    : c >= 0xe0 && c < 0xf0 ? 3
                    : c >= 0xf0 && c < 0xf5 ? 4
                                            : 0;
    if (length == 0 || i + length > text.size()) length = 0;
    for (size_t k = 1; k < length; ++k) {
      if ((static_cast<unsigned char>(text[i + k]) & 0xc0) != 0x80) {
        length = 0;
        break;
      }
    }
    if (length == 3) {  // overlong forms and surrogates
      const unsigned char d = static_cast<unsigned char>(text[i + 1]);
      if ((c == 0xe0 && d < 0xa0) || (c == 0xed && d >= 0xa0)) length = 0;
    } else if (length == 4) {
      const unsigned char d = static_cast<unsigned char>(text[i + 1]);
      if ((c == 0xf0 && d < 0x90) || (c == 0xf4 && d >= 0x90)) length = 0;
    }
    if (length == 0)
      throw Error(ErrorKind::Usage, "not valid UTF-8")
          .at(mark.text())
          .found(fmt::format("byte 0x{:02x} at offset {}", c, i))
          .cure("save the text as UTF-8");
    if ((c < 0x20 && c != '\n' && c != '\r' && c != '\t') || c == 0x7f) {
      throw Error(ErrorKind::Usage, "a control character")
          .at(mark.text())
          .found(fmt::format("byte 0x{:02x} at offset {}", c, i))
          .cure("remove it, or write it as an escape in double quotes");
    }
    if (!one_line) c == '\n' ? (++mark.line, mark.column = 1) : ++mark.column;
    i += length;
  }
}

bool plain_is_safe(const std::string& text) {
  if (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL") return false;
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); };
  if (!letter(text[0]) && text[0] != '.' && text[0] != '/' && text[0] != '_' &&
      !(text.size() > 1 && text[0] == '-' && letter(text[1])))
    return false;
  if (text == "..." || text == "---") return false;
  return std::all_of(text.begin(), text.end(), [&](char c) {
    return letter(c) || std::string_view("._-/+()=*@^").find(c) != std::string_view::npos;
  });
}

void write_flow(const YamlNode& node, std::string& out) {
  switch (node.kind) {
    case YamlNode::Kind::Null:
      out += "null";
      return;
    case YamlNode::Kind::Scalar:
      out += scalar_text(node.scalar, node.quoted);
      return;
    case YamlNode::Kind::List:
      out += '[';
      for (size_t i = 0; i < node.items.size(); ++i) {
        if (i > 0) out += ", ";
        write_flow(node.items[i], out);
      }
      out += ']';
      return;
    case YamlNode::Kind::Map:
      out += '{';
      for (size_t i = 0; i < node.entries.size(); ++i) {
        if (i > 0) out += ", ";
        out += scalar_text(node.entries[i].key) + ": ";
        write_flow(node.entries[i].value, out);
      }
      out += '}';
      return;
  }
}

}  // namespace

std::string Mark::text() const {
  const std::string name = source ? printable(*source, 400) : "?";
  return line > 0 ? fmt::format("{}:{}:{}", name, line, column) : name;
}

std::string Mark::line_text() const {
  const std::string name = source ? printable(*source, 400) : "?";
  return line > 0 ? fmt::format("{}:{}", name, line) : name;
}

const YamlNode* YamlNode::find(std::string_view key) const {
  for (const YamlEntry& entry : entries) {
    if (entry.key == key) return &entry.value;
  }
  return nullptr;
}

YamlNode* YamlNode::find(std::string_view key) { return const_cast<YamlNode*>(std::as_const(*this).find(key)); }

std::string YamlNode::describe() const {
  switch (kind) {
    case Kind::Null:
      return "nothing";
    case Kind::Scalar:
      return fmt::format("'{}'{}", printable(scalar), quoted ? " in quotes" : "");
    case Kind::List:
      return fmt::format("a list of {}", items.size());
    case Kind::Map: {
      std::string keys;
      for (const YamlEntry& entry : entries) keys += (keys.empty() ? "" : ", ") + printable(entry.key, 40);
      return "a map" + (keys.empty() ? std::string() : " with keys " + printable(keys, 200));
    }
  }
  return "?";
}

YamlNode parse_yaml(std::string_view text, const std::string& source, bool one_line, const YamlLimits& limits) {
  const auto name = std::make_shared<const std::string>(source);
  if (text.size() > limits.bytes) {
    throw Error(ErrorKind::Usage, "too large for a configuration")
        .at(printable(source, 400))
        .found(fmt::format("{} bytes", text.size()))
        .expected(fmt::format("at most {} bytes", limits.bytes))
        .cure("check that this is the configuration and not a file of data");
  }
  check_characters(text, name, one_line);
  TreeBuilder builder(name, one_line, limits);
  try {
    std::istringstream stream{std::string(text) + "\n" + kEnd + "\n"};
    YAML::Parser parser(stream);
    if (!parser.HandleNextDocument(builder)) return YamlNode{.mark = Mark{name, one_line ? 0 : 1, one_line ? 0 : 1}};
    YamlNode root = builder.take_root();
    TreeBuilder rest(name, one_line, limits);
    if (parser.HandleNextDocument(rest)) {
      throw Error(ErrorKind::Usage, "a second YAML document")
          .at(rest.take_root().mark.text())
          .expected("one document")
          .cure("remove the line '---'");
    }
    return root;
  } catch (const YAML::Exception& error) {
    Mark mark = builder.mark_of(error.mark);
    const int64_t last = 1 + std::count(text.begin(), text.end(), '\n');
    if (mark.line > last)
      mark.line = last,
      mark.column = static_cast<int64_t>(text.size() - (text.rfind('\n') + 1)) + 1;  // in the line of kEnd
    throw Error(ErrorKind::Usage, "not valid YAML: " + error.msg)
        .at(mark.text())
        .cure("close brackets and quotes before this place, indent with spaces, and quote text that holds ': ' or ' #'");
  }
}

std::string scalar_text(const std::string& text, bool quoted) {
  if (!quoted && plain_is_safe(text)) return text;
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string flow_text(const YamlNode& node) {
  std::string out;
  write_flow(node, out);
  return out;
}

}  // namespace ballast
