#pragma once
// Reading a value of the configuration that is a tree of its own (a source, a topology): each error names the place in the file.
#include <string>
#include <utility>
#include <vector>

#include "ballast/base/config.h"
#include "ballast/base/error.h"

namespace ballast {

// Runs `read` and gives its Error(Usage) the place of the value.
template <class Function>
auto located(const Mark& mark, const std::string& key, Function read) {
  try {
    return read();
  } catch (const Error& error) {
    if (error.place().starts_with(mark.text())) throw;
    Error copy = error;
    throw std::move(copy).at(mark.text(), error.place().empty() ? key : error.place());
  }
}

// Throws Error(Usage) for the first entry of `map` that is none of the known ones, with the nearest of them.
void known_keys(const YamlNode& map, const std::string& key, const std::vector<std::string>& known);
// The text of a node that is a single value, else Error(Usage).
const std::string& scalar_of(const YamlNode& node, const std::string& key, const std::string& expected);

}  // namespace ballast
