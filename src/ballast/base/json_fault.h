#pragma once
// What a JSON library's exception says, in the words of our own messages: place, found, expected.
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "ballast/base/error.h"

namespace ballast {

struct JsonFault {
  int64_t byte = 0;      // of the text, from 0, where it stops being JSON; 0 where only a value is wrong
  std::string place;     // "byte 40 (line 3, column 7)", lines from 1, or "" where only a value is wrong
  std::string found;     // "'}' in place of a value"
  std::string expected;  // may be empty
};

// `text` is what was parsed; it may be empty where the fault is in a value that was already parsed.
JsonFault describe_json_fault(const nlohmann::json::exception& fault, std::string_view text);

// Error(kind, what).at(file, place).found().expected()
Error json_error(ErrorKind kind, const std::string& what, const std::string& file,
                 const nlohmann::json::exception& fault, std::string_view text = {});

}  // namespace ballast
