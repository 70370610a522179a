#include "ballast/data/pretokenizer_regex.h"

#include <fmt/format.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <new>

#include "ballast/base/error.h"

namespace ballast {
namespace {

// The JIT's own stack: grows on demand up to this; deeper matches are run again by the interpreter, whose memory is the heap's.
constexpr size_t kJitStackFirst = 32 * 1024, kJitStackMost = 8 * 1024 * 1024;
constexpr uint32_t kHeapLimitKib = 512 * 1024;

std::string pcre_text(int code) {
  unsigned char text[256];
  pcre2_get_error_message(code, text, sizeof(text));
  return reinterpret_cast<const char*>(text);
}

}  // namespace

struct RegexScratch::State {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(kJitStackFirst, kJitStackMost, nullptr);

  State() {
    if (!data || !context) throw std::bad_alloc();
    if (stack) pcre2_jit_stack_assign(context, nullptr, stack);
    pcre2_set_heap_limit(context, kHeapLimitKib);
  }
  ~State() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    if (stack) pcre2_jit_stack_free(stack);
  }
};

RegexScratch::RegexScratch() = default;
RegexScratch::~RegexScratch() = default;
RegexScratch::RegexScratch(RegexScratch&&) noexcept = default;
RegexScratch& RegexScratch::operator=(RegexScratch&&) noexcept = default;

struct Regex::Code {
  pcre2_code* code = nullptr;
  ~Code() { pcre2_code_free(code); }
};

Regex::Regex(const std::string& pattern, const std::string& place)
    : code_(std::make_unique<Code>()), pattern_(pattern), place_(place) {
  const std::string translated = translate_regex(pattern, place);
  int error = 0;
  PCRE2_SIZE offset = 0;
  code_->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(), PCRE2_UTF | PCRE2_UCP,
                              &error, &offset, nullptr);
  if (!code_->code) {
    throw Error(ErrorKind::Data, fmt::format("the regular expression does not compile: {}", pcre_text(error)))
        .at(place, fmt::format("near offset {}", offset))
        .found(printable(pattern));
  }
  pcre2_jit_compile(code_->code, PCRE2_JIT_COMPLETE);   // without a JIT the interpreter gives the same matches
}

Regex::~Regex() = default;

bool Regex::find(std::string_view text, size_t from, size_t& begin, size_t& end, RegexScratch& scratch) const {
  if (!scratch.state_) scratch.state_ = std::make_unique<RegexScratch::State>();
  RegexScratch::State& state = *scratch.state_;
  const auto match = [&](uint32_t options) {
    return pcre2_match(code_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from, options, state.data,
                       state.context);
  };
  int result = match(PCRE2_NO_UTF_CHECK);
  if (result == PCRE2_ERROR_JIT_STACKLIMIT) result = match(PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT);
  if (result == PCRE2_ERROR_NOMATCH) return false;
  if (result < 0) {
    throw Error(ErrorKind::Data, fmt::format("the tokenizer's regular expression cannot be run on this text: {}", pcre_text(result)))
        .at(place_, fmt::format("byte {} of a text of {} bytes", from, text.size()))
        .found(printable(pattern_));
  }
  const PCRE2_SIZE* at = pcre2_get_ovector_pointer(state.data);
  begin = at[0];
  end = at[1];
  return true;
}

}  // namespace ballast
