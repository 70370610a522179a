// JSON lines: cut into chunks of whole lines by one thread, parsed by simdjson in any.
#include <simdjson.h>

#include <algorithm>

#include "ballast/base/error.h"
#include "ballast/data/byte_stream.h"
#include "ballast/data/record_reader.h"

namespace ballast {

namespace {

using simdjson::dom::element;
using simdjson::dom::object;

const char* type_name(element value) {
  switch (value.type()) {
    case simdjson::dom::element_type::ARRAY:
      return "a list";
    case simdjson::dom::element_type::OBJECT:
      return "an object";
    case simdjson::dom::element_type::STRING:
      return "a string";
    case simdjson::dom::element_type::BOOL:
      return "a boolean";
    case simdjson::dom::element_type::NULL_VALUE:
      return "null";
    default:
      return "a number";
  }
}

// One line's object with its place, for messages.
class Line {
 public:
  Line(const std::string& path, int64_t number, object fields) : path_(path), number_(number), fields_(fields) {}

  std::string place() const { return "line " + std::to_string(number_); }

  element field(object fields, const std::string& name, const std::string& what) const {
    element value;
    bool found = false;
    for (const auto& [key, candidate] : fields) {
      if (key != name) continue;
      if (found)
        throw Error(ErrorKind::Data, "the field '" + printable(name, 40) + "' comes twice in one record")
            .at(path_, place());
      found = true;
      value = candidate;
    }
    if (!found) {
      std::vector<std::string> present;
      for (const auto& [key, candidate] : fields) present.emplace_back(key);
      throw_missing_field(path_, place(), name, what, present);
    }
    return value;
  }

  std::string text(object fields, const std::string& name, const std::string& what) const {
    const element value = field(fields, name, what);
    std::string_view text;
    if (value.get(text) != simdjson::SUCCESS) wrong_type(value, name, "a string");
    return std::string(text);
  }

  std::vector<ChatMessage> messages(const RecordFormat& format) const {
    const element list = field(fields_, format.messages, "messages");
    simdjson::dom::array items;
    if (list.get(items) != simdjson::SUCCESS) wrong_type(list, format.messages, "a list of objects");
    std::vector<ChatMessage> messages;
    for (const element item : items) {
      object fields;
      if (item.get(fields) != simdjson::SUCCESS)
        wrong_type(item, format.messages + "[" + std::to_string(messages.size()) + "]", "an object");
      messages.push_back({text(fields, format.role, "role"), text(fields, format.content, "content")});
    }
    if (messages.empty())
      throw Error(ErrorKind::Data, "a record has no messages").at(path_, place()).found("an empty list");
    return messages;
  }

  Record record(const RecordFormat& format) const {
    Record record;
    record.place = place();
    if (format.kind == RecordKind::Text) record.text = text(fields_, format.text, "text");
    if (format.kind == RecordKind::PromptCompletion) {
      record.text = text(fields_, format.prompt, "prompt");
      record.completion = text(fields_, format.completion, "completion");
    }
    if (format.kind == RecordKind::Chat) record.messages = messages(format);
    return record;
  }

 private:
  [[noreturn]] void wrong_type(element value, const std::string& name, const std::string& expected) const {
    throw Error(ErrorKind::Data, "a field has the wrong type")
        .at(path_, place() + ", field '" + printable(name, 40) + "'")
        .found(type_name(value))
        .expected(expected);
  }
  const std::string& path_;
  int64_t number_;
  object fields_;
};

bool blank(std::string_view line) { return line.find_first_not_of(" \t\r") == std::string_view::npos; }

[[noreturn]] void throw_invalid(const std::string& path, int64_t number, std::string_view line,
                                simdjson::error_code code) {
  const std::string place = "line " + std::to_string(number);
  if (code == simdjson::UTF8_ERROR)
    throw Error(ErrorKind::Data, "a record is not valid UTF-8")
        .at(path, place)
        .cure("convert the file to UTF-8, for example by iconv");
  if (code == simdjson::MEMALLOC) throw Error(ErrorKind::OutOfMemory, "no memory to parse a record").at(path, place);
  std::string cure = "each line must be one whole JSON object";
  if (!line.empty() && line.front() == '[')
    cure = "the file holds a JSON array: turn it into lines, for example by jq -c '.[]'";
  throw Error(ErrorKind::Data, std::string("a line is not valid JSON: ") + simdjson::error_message(code))
      .at(path, place)
      .found(printable(std::string(line.substr(0, 100)), 60))
      .cure(cure);
}

class JsonlChunk : public RecordChunk {
 public:
  JsonlChunk(std::string path, std::string lines, int64_t first_line)
      : path_(std::move(path)), lines_(std::move(lines)), first_line_(first_line) {}
  void decode(const RecordFormat& format, const std::function<void(const Record&)>& sink) const override {
    decode_jsonl(lines_, path_, first_line_, format, sink);
  }

 private:
  std::string path_, lines_;
  int64_t first_line_;
};

class JsonlReader : public RecordReader {
 public:
  JsonlReader(const std::string& path, int64_t chunk_bytes)
      : path_(path), stream_(open_stream(path)), chunk_bytes_(static_cast<size_t>(chunk_bytes)) {}

  std::unique_ptr<RecordChunk> next() override {
    std::string lines = std::move(rest_);
    rest_.clear();
    // What is left of the last chunk holds no line end, so only new bytes are searched.
    size_t filled = lines.size(), end = std::string::npos;
    while (!done_ && (filled < chunk_bytes_ || end == std::string::npos)) {
      if (static_cast<int64_t>(filled) > kLongestRecord)
        throw Error(ErrorKind::Data, "a line is longer than one record may be")
            .at(path_, "line " + std::to_string(line_))
            .expected("at most 1 GiB")
            .cure("is this a file of JSON lines?");
      const size_t before = filled;
      lines.resize(filled < chunk_bytes_ ? chunk_bytes_ + 1 : filled + filled / 2 + 1);
      const size_t got = stream_->read(lines.data() + before, lines.size() - before);
      filled = before + got;
      lines.resize(filled);
      if (got == 0) done_ = true;
      const size_t last = std::string_view(lines).substr(before).rfind('\n');
      if (last != std::string_view::npos) end = before + last;
    }
    if (done_) end = std::string::npos;  // the last line may lack its end
    if (end != std::string::npos) {
      rest_.assign(lines, end + 1);
      lines.resize(end + 1);
    }
    if (lines.empty()) return nullptr;
    const int64_t first = line_;
    line_ += std::count(lines.begin(), lines.end(), '\n');
    if (first == 1 && lines.compare(0, 3, "\xef\xbb\xbf") == 0) lines.erase(0, 3);
    return std::make_unique<JsonlChunk>(path_, std::move(lines), first);
  }
  int64_t consumed() const override { return stream_->consumed(); }

 private:
  std::string path_;
  std::unique_ptr<ByteStream> stream_;
  size_t chunk_bytes_;
  std::string rest_;
  int64_t line_ = 1;
  bool done_ = false;
};

}  // namespace

void decode_jsonl(const std::string& lines, const std::string& path, int64_t first_line, const RecordFormat& format,
                  const std::function<void(const Record&)>& sink) {
  simdjson::dom::parser parser;
  int64_t number = first_line;
  for (size_t begin = 0; begin < lines.size(); ++number) {
    size_t end = lines.find('\n', begin);
    if (end == std::string::npos) end = lines.size();
    const std::string_view line(lines.data() + begin, end - begin);
    begin = end + 1;
    if (blank(line)) continue;
    element document;
    // parse() copies the line into a buffer with the padding that simdjson needs.
    const simdjson::error_code code = parser.parse(line.data(), line.size()).get(document);
    if (code != simdjson::SUCCESS) throw_invalid(path, number, line, code);
    object fields;
    if (document.get(fields) != simdjson::SUCCESS)
      throw Error(ErrorKind::Data, "a line is not a JSON object")
          .at(path, "line " + std::to_string(number))
          .found(type_name(document))
          .expected("an object with the fields of the format " + format.name())
          .cure(line.front() == '[' ? "a JSON array must be turned into lines, for example by jq -c '.[]'"
                                    : "each line must be one whole JSON object");
    sink(Line(path, number, fields).record(format));
  }
}

std::unique_ptr<RecordReader> open_jsonl(const std::string& path, int64_t chunk_bytes) {
  return std::make_unique<JsonlReader>(path, chunk_bytes);
}

}  // namespace ballast
