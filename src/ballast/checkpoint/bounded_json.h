#pragma once
// JSON from files, with a bound on nesting: copying and printing of a parsed value recurse.
#include <nlohmann/json.hpp>
#include <string>

namespace ballast {

// The parsed value, or a discarded one (is_discarded()) for text that is no JSON or nests deeper than `max_depth`.
template <class Json = nlohmann::json>
Json parse_bounded_json(const std::string& text, int max_depth = 64) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > max_depth) return Json(Json::value_t::discarded);
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return Json::parse(text, nullptr, false);
}

}  // namespace ballast
