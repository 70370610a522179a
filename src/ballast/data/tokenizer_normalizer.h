#pragma once
// Unicode normal forms of a text before it is cut into words.
#include <string>
#include <string_view>

namespace ballast {

enum class NormalForm { None, Nfc, Nfd, Nfkc, Nfkd };

// The normal form of valid UTF-8, in `storage` unless the text is known to be in that form already.
std::string_view normalize(NormalForm form, std::string_view text, std::string& storage);

}  // namespace ballast
