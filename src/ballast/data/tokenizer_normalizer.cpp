#include "ballast/data/tokenizer_normalizer.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>

#include "ballast/base/error.h"

namespace ballast {

std::string_view normalize(NormalForm form, std::string_view text, std::string& storage) {
  if (form == NormalForm::None) return text;
  // Below this lead byte all characters are their own normal form: ASCII, and for NFC all below U+0300.
  const unsigned char first_changed = form == NormalForm::Nfc ? 0xCC : 0x80;
  if (std::none_of(text.begin(), text.end(), [&](char c) { return static_cast<unsigned char>(c) >= first_changed; })) return text;
  int options = UTF8PROC_STABLE;
  if (form == NormalForm::Nfc || form == NormalForm::Nfkc) options |= UTF8PROC_COMPOSE;
  if (form == NormalForm::Nfd || form == NormalForm::Nfkd) options |= UTF8PROC_DECOMPOSE;
  if (form == NormalForm::Nfkc || form == NormalForm::Nfkd) options |= UTF8PROC_COMPAT;
  utf8proc_uint8_t* out = nullptr;
  const utf8proc_ssize_t size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                             static_cast<utf8proc_ssize_t>(text.size()), &out,
                                             static_cast<utf8proc_option_t>(options));
  const std::unique_ptr<utf8proc_uint8_t, void (*)(void*)> owner(out, std::free);
  if (size == UTF8PROC_ERROR_NOMEM) throw std::bad_alloc();
  if (size < 0) {
    throw Error(ErrorKind::Data, fmt::format("a text cannot be normalized: {}", utf8proc_errmsg(size)))
        .found(printable(std::string(text.substr(0, 64))));
  }
  storage.assign(reinterpret_cast<const char*>(out), static_cast<size_t>(size));
  return storage;
}

}  // namespace ballast
