#include "ballast/model/safetensors_header.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "ballast/base/error.h"
#include "ballast/base/json_fault.h"
#include "ballast/model/safetensors.h"

namespace ballast {

int64_t safetensors_element_bytes(const std::string& dtype) {
  static constexpr std::array<std::pair<const char*, int64_t>, 17> kSizes = {{{"BOOL", 1},
                                                                              {"U8", 1},
                                                                              {"I8", 1},
                                                                              {"F8_E4M3", 1},
                                                                              {"F8_E5M2", 1},
                                                                              {"F8_E8M0", 1},
                                                                              {"I16", 2},
                                                                              {"U16", 2},
                                                                              {"F16", 2},
                                                                              {"BF16", 2},
                                                                              {"I32", 4},
                                                                              {"U32", 4},
                                                                              {"F32", 4},
                                                                              {"I64", 8},
                                                                              {"U64", 8},
                                                                              {"F64", 8},
                                                                              {"C64", 8}}};
  for (const auto& [name, size] : kSizes)
    if (dtype == name) return size;
  return 0;
}

namespace {

// {"NAME": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, "__metadata__": {"format": "pt"}}
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderReader(SafetensorsHeader& header, std::string file, std::string_view text)
      : header_(header), file_(std::move(file)), text_(text) {}

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a boolean"); }
  bool number_float(number_float_t, const string_t& text) override {
    return unexpected("the number " + printable(text));
  }
  bool number_integer(number_integer_t value) override { return unexpected(fmt::format("the number {}", value)); }
  bool binary(binary_t&) override { return unexpected("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ != Place::Shape && place_ != Place::Offsets) return unexpected(fmt::format("the number {}", value));
    if (value > static_cast<uint64_t>(INT64_MAX))
      return unexpected(fmt::format("the number {}, which is too large", value));
    if (place_ == Place::Shape) {
      if (entry_.shape.size() == 16) return unexpected("more than 16 dimensions");
      entry_.shape.push_back(static_cast<int64_t>(value));
    } else {
      if (offsets_ == 2) return unexpected("more than two offsets");
      (offsets_++ == 0 ? entry_.begin : entry_.end) = value;
    }
    return true;
  }

  bool string(string_t& value) override {
    if (place_ == Place::Metadata) {
      header_.metadata[key_] = value;
    } else if (place_ == Place::Entry && key_ == "dtype") {
      entry_.dtype = value;
    } else {
      return unexpected("a string");
    }
    return true;
  }

  bool start_object(size_t) override {
    if (place_ == Place::Before) {
      place_ = Place::Top;
    } else if (place_ == Place::Top && key_ == "__metadata__") {
      place_ = Place::Metadata;
    } else if (place_ == Place::Top) {
      place_ = Place::Entry;
      entry_ = {};
      entry_.name = key_;
      offsets_ = 0;
    } else {
      return unexpected("an object");
    }
    keys_.clear();
    return true;
  }

  bool key(string_t& name) override {
    std::set<std::string>& seen = place_ == Place::Top ? names_ : keys_;
    if (!seen.insert(name).second) fail(fmt::format("the key '{}' stands twice", printable(name)));
    if (place_ == Place::Entry && name != "dtype" && name != "shape" && name != "data_offsets")
      fail(fmt::format("unknown key '{}'", printable(name)));
    key_ = name;
    return true;
  }

  bool start_array(size_t) override {
    if (place_ != Place::Entry || key_ == "dtype") return unexpected("a list");
    place_ = key_ == "shape" ? Place::Shape : Place::Offsets;
    return true;
  }

  bool end_array() override {
    if (place_ == Place::Offsets && offsets_ != 2) fail("data_offsets has not two numbers");
    place_ = Place::Entry;
    return true;
  }

  bool end_object() override {
    if (place_ == Place::Entry) finish_entry();
    place_ = place_ == Place::Top ? Place::Before : Place::Top;
    return true;
  }

  bool parse_error(size_t, const std::string&, const nlohmann::json::exception& fault) override {
    const JsonFault described = describe_json_fault(fault, text_);
    throw Error(ErrorKind::CorruptFile, "the safetensors header is not valid JSON")
        .at(file_, fmt::format("byte {}", described.byte + 8))  // of the file: the header's length stands before
        .found(described.found)
        .expected(described.expected)
        .cure(kSafetensorsCure);
  }

 private:
  enum class Place { Before, Top, Metadata, Entry, Shape, Offsets };

  [[noreturn]] void fail(const std::string& what) {
    const bool inside = place_ == Place::Entry || place_ == Place::Shape || place_ == Place::Offsets;
    throw Error(ErrorKind::CorruptFile, "bad safetensors header: " + what)
        .at(file_, inside ? fmt::format("tensor '{}'", printable(entry_.name)) : "")
        .cure(kSafetensorsCure);
  }
  bool unexpected(const std::string& what) {
    fail(place_ == Place::Before ? "not an object, but " + what
                                 : fmt::format("{} as the value of '{}'", what, printable(key_)));
  }

  void finish_entry() {
    for (const char* needed : {"dtype", "shape", "data_offsets"})
      if (!keys_.contains(needed)) fail(fmt::format("no key '{}'", needed));
    const int64_t element = safetensors_element_bytes(entry_.dtype);
    if (element == 0) fail(fmt::format("unknown dtype '{}'", printable(entry_.dtype)));
    if (entry_.end < entry_.begin) fail(fmt::format("data_offsets [{}, {}] run backwards", entry_.begin, entry_.end));
    // The product must stay in 63 bits at every factor, even before a zero one.
    int64_t bytes = element;
    bool overflow = false;
    for (const int64_t size : entry_.shape) overflow = __builtin_mul_overflow(bytes, size, &bytes) || overflow;
    if (overflow) fail("the shape is too large");
    if (static_cast<uint64_t>(bytes) != entry_.end - entry_.begin)
      fail(fmt::format("shape and dtype make {} bytes, data_offsets {}", bytes, entry_.end - entry_.begin));
    header_.entries.push_back(std::move(entry_));
  }

  SafetensorsHeader& header_;
  std::string file_, key_;
  std::string_view text_;
  Place place_ = Place::Before;
  SafetensorsHeader::Entry entry_;
  int offsets_ = 0;
  std::set<std::string> names_, keys_;
};

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view text, const std::string& file) {
  SafetensorsHeader header;
  HeaderReader reader(header, file, text);
  nlohmann::json::sax_parse(text, &reader);
  return header;
}

std::string write_safetensors_header(const SafetensorsHeader& header) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  if (!header.metadata.empty()) json["__metadata__"] = header.metadata;
  for (const auto& entry : header.entries)
    json[entry.name] = {{"dtype", entry.dtype}, {"shape", entry.shape}, {"data_offsets", {entry.begin, entry.end}}};
  std::string text = json.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

}  // namespace ballast
