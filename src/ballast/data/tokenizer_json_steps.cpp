// The normalizer and pre_tokenizer of tokenizer.json.
#include <fmt/format.h>

#include "ballast/base/error.h"
#include "ballast/data/tokenizer_json.h"

namespace ballast {
namespace {

[[noreturn]] void refuse_type(const JsonValue& value, const char* what, const char* supported) {
  const JsonValue type = value.get("type");
  type.refuse(fmt::format("{} '{}' is not supported", what, printable(std::string(type.string()))), fmt::format("supported are {}", supported));
}

SplitBehavior read_behavior(const JsonValue& value) {
  const std::string_view name = value.string();
  if (name == "Removed") return SplitBehavior::Removed;
  if (name == "Isolated") return SplitBehavior::Isolated;
  if (name == "MergedWithPrevious") return SplitBehavior::MergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::MergedWithNext;
  if (name == "Contiguous") return SplitBehavior::Contiguous;
  value.refuse(fmt::format("behavior '{}' is unknown", printable(std::string(name))));
}

PretokenizerStep read_split(const JsonValue& step) {
  step.allow_only({"type", "pattern", "behavior", "invert"});
  const JsonValue pattern = step.get("pattern");
  pattern.allow_only({"Regex", "String"});
  const auto regex = pattern.find("Regex"), literal = pattern.find("String");
  if (regex.has_value() == literal.has_value()) pattern.refuse("a pattern is either Regex or String");
  const std::string text = regex ? std::string(regex->string()) : quote_regex(literal->string());
  if (text.empty()) pattern.refuse("the pattern is empty");
  return pattern_step(text, read_behavior(step.get("behavior")), step.boolean_or("invert", false),
                      fmt::format("{}, {}", pattern.file(), pattern.place()));
}

// ByteLevel is the last step: what follows would see its alphabet and not the text.
void read_byte_level(const JsonValue& step, std::vector<PretokenizerStep>& steps) {
  step.allow_only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  if (step.boolean_or("add_prefix_space", true)) {
    PretokenizerStep prefix;
    prefix.kind = PretokenizerStep::Kind::PrefixSpace;
    steps.push_back(prefix);
  }
  if (step.boolean_or("use_regex", true)) {
    steps.push_back(pattern_step(pattern_text(KnownPattern::Gpt2), SplitBehavior::Isolated, false, step.place()));
  }
}

}  // namespace

NormalForm read_normalizer(const JsonValue& normalizer) {
  const std::string_view type = normalizer.get("type").string();
  if (type == "Sequence") {
    normalizer.allow_only({"type", "normalizers"});
    const JsonValue list = normalizer.get("normalizers");
    const simdjson::dom::array all = list.array();
    if (all.size() == 0) return NormalForm::None;
    if (all.size() > 1) list.refuse("more than one normalizer is not supported");
    const JsonValue only = list.element(all.at(0), 0);
    if (only.get("type").string() == "Sequence") only.refuse("a Sequence inside a Sequence is not supported");
    return read_normalizer(only);
  }
  normalizer.allow_only({"type"});
  if (type == "NFC") return NormalForm::Nfc;
  if (type == "NFD") return NormalForm::Nfd;
  if (type == "NFKC") return NormalForm::Nfkc;
  if (type == "NFKD") return NormalForm::Nfkd;
  refuse_type(normalizer, "normalizer", "NFC, NFD, NFKC, NFKD");
}

Pretokenizer read_pretokenizer(const JsonValue& pretokenizer) {
  std::vector<JsonValue> list;
  if (pretokenizer.get("type").string() == "Sequence") {
    pretokenizer.allow_only({"type", "pretokenizers"});
    const JsonValue inner = pretokenizer.get("pretokenizers");
    size_t index = 0;
    for (const simdjson::dom::element step : inner.array()) list.push_back(inner.element(step, index++));
  } else {
    list.push_back(pretokenizer);
  }
  std::vector<PretokenizerStep> steps;
  bool byte_level = false;
  for (const JsonValue& step : list) {
    const std::string_view type = step.get("type").string();
    if (byte_level) step.refuse("nothing may follow ByteLevel");
    if (type == "ByteLevel") {
      read_byte_level(step, steps);
      byte_level = true;
    } else if (type == "Split") {
      steps.push_back(read_split(step));
    } else if (type == "Digits") {
      step.allow_only({"type", "individual_digits"});
      PretokenizerStep digits;
      digits.kind = PretokenizerStep::Kind::Digits;
      digits.behavior = step.boolean_or("individual_digits", false) ? SplitBehavior::Isolated : SplitBehavior::Contiguous;
      steps.push_back(digits);
    } else {
      refuse_type(step, "pre_tokenizer", "ByteLevel, Split, Digits and a Sequence of these");
    }
  }
  if (!byte_level) pretokenizer.refuse("the pre_tokenizer is not byte-level", "only tokenizers whose last step is ByteLevel are supported");
  return Pretokenizer(std::move(steps));
}

}  // namespace ballast
