// ballast generate: text from a run's best weights or from a model folder, printed as it comes.
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>

#include "ballast/base/error.h"
#include "ballast/base/log.h"
#include "ballast/comm/bootstrap.h"
#include "ballast/data/chat_template.h"
#include "ballast/data/tokenizer.h"
#include "ballast/kernel/allocator.h"
#include "ballast/model/generate.h"
#include "ballast/train/commands.h"
#include "ballast/train/weights_source.h"

namespace ballast {

namespace {

// The longest prefix of `bytes` that does not end inside a UTF-8 character: what may be printed now.
size_t printable_prefix(const std::string& bytes) {
  for (size_t back = 1; back <= std::min<size_t>(3, bytes.size()); ++back) {
    const auto c = static_cast<unsigned char>(bytes[bytes.size() - back]);
    if ((c & 0xC0) == 0x80) continue;
    const size_t length = c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : c >= 0xC0 ? 2 : 1;
    return length > back ? bytes.size() - back : bytes.size();
  }
  return bytes.size();
}

// Ids that the model has and the tokenizer has not (padding of the vocabulary, holes) are shown as U+FFFD.
std::string decoded(const Tokenizer& tokenizer, std::span<const int32_t> ids) {
  try {
    return tokenizer.decode(ids);
  } catch (const Error&) {
    std::string text;
    for (const int32_t& id : ids) {
      try {
        text += tokenizer.decode(std::span(&id, 1));
      } catch (const Error&) {
        text += "\xEF\xBF\xBD";
      }
    }
    return text;
  }
}

std::vector<int64_t> prompt_ids(const TextOptions& options, const Tokenizer& tokenizer, const WeightsSource& source) {
  std::vector<int32_t> ids;
  if (options.chat) {
    if (!source.config || source.config->data.chat_template.empty()) {
      throw Error(ErrorKind::Usage, "--chat needs a run that was trained with data.template").at(options.path);
    }
    const std::vector<ChatMessage> messages{{"user", options.prompt}};
    ids = encode_chat(tokenizer, parse_chat_template(source.config->data.chat_template), messages, true).ids;
  } else {
    ids = tokenizer.encode(options.prompt);
  }
  if (ids.empty()) throw Error(ErrorKind::Usage, "the prompt is empty").at("--prompt").cure("give at least one character");
  return {ids.begin(), ids.end()};
}

}  // namespace

int run_generate(const TextOptions& options) {
  install_allocator();
  const int threads = options.threads > 0 ? static_cast<int>(options.threads) : threads_per_rank({});
  at::set_num_threads(threads);
  const WeightsSource source = open_weights(options.path);
  const auto tokenizer = source.tokenizer();
  const ModelFolder folder = ModelFolder::open(source.folder);
  const ModelWeights weights = ModelWeights::from_folder(folder, options.precision == "bf16" ? at::kBFloat16 : at::kFloat);
  const std::vector<int64_t> prompt = prompt_ids(options, *tokenizer, source);

  GenerateOptions generation;
  generation.max_tokens = options.tokens;
  generation.sampling = {options.temperature, options.top_k, options.top_p};
  generation.seed = options.seed;
  generation.end_of_text = {tokenizer->end_of_text()};
  KvCache cache(weights.config(), 1, cache_capacity(weights.config(), static_cast<int64_t>(prompt.size()), options.tokens), weights.dtype());
  // Text is decoded as a whole: a SentencePiece token alone would lose its space.
  std::vector<int32_t> ids;
  std::string text;
  size_t printed = 0;
  // Whatever is wrong with prompt or options is said before anything is printed.
  check_sampling(generation.sampling);
  bool echoed = options.json;
  const auto echo = [&] {
    if (!echoed) std::cout << options.prompt << std::flush;
    echoed = true;
  };
  const auto began = std::chrono::steady_clock::now();
  double first_s = 0;
  const auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count(); };
  const Generation result = generate(weights, cache, prompt, generation, [&](int64_t id) {
    if (first_s == 0) first_s = seconds();
    echo();
    ids.push_back(static_cast<int32_t>(id));
    if (options.json) return true;
    text = decoded(*tokenizer, ids);
    const size_t ready = printable_prefix(text);
    if (ready > printed) {
      std::cout << text.substr(printed, ready - printed) << std::flush;
      printed = ready;
    }
    return true;
  });
  echo();
  const double total_s = seconds();
  const auto count = static_cast<double>(result.ids.size());
  if (options.json) {
    std::cout << nlohmann::json{{"prompt", options.prompt}, {"text", decoded(*tokenizer, std::vector<int32_t>(result.ids.begin(), result.ids.end()))}, {"ids", result.ids}, {"stopped_by", name_of(result.reason)},
                                {"first_token_s", first_s}, {"tokens_per_s", total_s > first_s ? (count - 1) / (total_s - first_s) : 0.0}}
                     .dump(2, ' ', false, nlohmann::json::error_handler_t::replace)
              << "\n";
  } else {
    std::cout << text.substr(printed) << std::endl;
    log_info("{} tokens, stopped by {}; first after {:.3f} s, then {:.1f} tokens/s", result.ids.size(), name_of(result.reason), first_s,
             total_s > first_s ? (count - 1) / (total_s - first_s) : 0.0);
  }
  return 0;
}

}  // namespace ballast
