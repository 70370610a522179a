// Encoding speed in bytes of text per second. TOKENIZER_TEXT names a JSONL or text file, a record a line; TOKENIZER a folder or
// file. bench/peers/tokenizer_hf.py times Hugging Face `tokenizers` on the same two.
#include <benchmark/benchmark.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "ballast/data/tokenizer.h"

namespace {

std::string from_environment(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value ? value : otherwise;
}

const std::vector<std::string>& lines() {
  static const std::vector<std::string> all = [] {
    std::ifstream file(from_environment("TOKENIZER_TEXT", "tests/data/golden/TestPlans.txt"));
    std::vector<std::string> read;
    for (std::string line; std::getline(file, line);) read.push_back(line);
    return read;
  }();
  return all;
}

void encode_lines(benchmark::State& state) {
  static const auto tokenizer = ballast::load_tokenizer(from_environment("TOKENIZER", "examples/tokenizers/gpt2"));
  const auto thread_count = static_cast<size_t>(state.range(0));
  int64_t bytes = 0, tokens = 0;
  for (const std::string& line : lines()) bytes += static_cast<int64_t>(line.size());
  for (auto _ : state) {
    std::atomic<size_t> next = 0;
    std::atomic<int64_t> found = 0;
    const auto work = [&] {
      std::vector<std::vector<int32_t>> kept;   // as a batch that is handed on keeps its ids
      int64_t own = 0;
      constexpr size_t kChunk = 64;
      for (size_t first = next.fetch_add(kChunk); first < lines().size(); first = next.fetch_add(kChunk)) {
        for (size_t i = first; i < std::min(first + kChunk, lines().size()); ++i) {
          kept.push_back(tokenizer->encode(lines()[i]));
          own += static_cast<int64_t>(kept.back().size());
        }
      }
      found += own;
    };
    std::vector<std::thread> threads;
    for (size_t t = 0; t < thread_count; ++t) threads.emplace_back(work);
    for (std::thread& thread : threads) thread.join();
    tokens = found;
  }
  state.SetBytesProcessed(state.iterations() * bytes);
  state.counters["tokens"] = static_cast<double>(tokens);
}
BENCHMARK(encode_lines)->Arg(1)->Arg(2)->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace
