#include "ballast/model/sampling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "ballast/base/error.h"
#include "ballast/kernel/dropout.h"

namespace ballast {

void check_sampling(const SamplingOptions& options) {
  const auto refuse = [](const char* option, const std::string& found, const char* expected) {
    throw Error(ErrorKind::Usage, "a sampling option is out of range").at(option).found(found).expected(expected);
  };
  if (!std::isfinite(options.temperature) || options.temperature < 0)
    refuse("temperature", fmt::format("{}", options.temperature), "0 (greedy) or more");
  if (options.top_k < 0) refuse("top-k", fmt::format("{}", options.top_k), "0 (all tokens) or more");
  if (!(options.top_p > 0 && options.top_p <= 1))
    refuse("top-p", fmt::format("{}", options.top_p), "more than 0, at most 1");
}

double uniform_at(uint64_t seed, uint64_t sequence, int64_t position) {
  const auto place = static_cast<uint64_t>(position);
  const auto bits = kernel::philox({static_cast<uint32_t>(place), static_cast<uint32_t>(place >> 32), 0x73616d70u, 0},
                                   kernel::stream_key(seed, sequence));
  return static_cast<double>((static_cast<uint64_t>(bits[0]) << 21) ^ (bits[1] >> 11)) * 0x1p-53;
}

int64_t choose_token(std::span<const float> logits, const SamplingOptions& options, double uniform) {
  const int64_t vocab = static_cast<int64_t>(logits.size());
  int64_t best = -1;
  for (int64_t id = 0; id < vocab; ++id) {
    const float value = logits[static_cast<size_t>(id)];
    if (std::isnan(value) || value == std::numeric_limits<float>::infinity())
      throw Error(ErrorKind::Numerical, "the model's logits are not finite")
          .at(fmt::format("token {}", id))
          .found(fmt::format("{}", value));
    if (value != -std::numeric_limits<float>::infinity() && (best < 0 || value > logits[static_cast<size_t>(best)]))
      best = id;
  }
  if (best < 0) throw Error(ErrorKind::Numerical, "no token has a probability").found("every logit is -infinity");
  if (options.temperature == 0) return best;

  const double top = logits[static_cast<size_t>(best)];
  struct Candidate {
    double weight;
    int64_t id;
  };
  std::vector<Candidate> candidates;
  candidates.reserve(logits.size());
  for (int64_t id = 0; id < vocab; ++id)
    candidates.push_back({std::exp((logits[static_cast<size_t>(id)] - top) / options.temperature), id});
  // Likelier first, then by id: with filters the order decides what stays, so it must be total.
  const auto before = [](const Candidate& a, const Candidate& b) {
    return a.weight != b.weight ? a.weight > b.weight : a.id < b.id;
  };
  if (options.top_k > 0 && options.top_k < vocab) {
    std::nth_element(candidates.begin(), candidates.begin() + (options.top_k - 1), candidates.end(), before);
    candidates.resize(static_cast<size_t>(options.top_k));
  }
  double total = 0;
  for (const Candidate& candidate : candidates) total += candidate.weight;
  if (options.top_p < 1) {
    // A heap hands out the likeliest ones without sorting the whole vocabulary.
    const auto after = [&](const Candidate& a, const Candidate& b) { return before(b, a); };
    std::make_heap(candidates.begin(), candidates.end(), after);
    auto end = candidates.end();
    double kept = 0;
    while (end != candidates.begin() && kept < options.top_p * total) {
      std::pop_heap(candidates.begin(), end, after);
      --end;
      kept += end->weight;
    }
    candidates.erase(candidates.begin(), end);
    total = kept;
  }
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
  double left = uniform * total;
  int64_t last = best;
  for (const Candidate& candidate : candidates) {
    if (candidate.weight == 0) continue;
    last = candidate.id;
    left -= candidate.weight;
    if (left < 0) return candidate.id;
  }
  return last;  // rounding left a crumb
}

}  // namespace ballast
