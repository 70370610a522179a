// Every codec over buffers much larger than the caches, on one core, in turn with copies of the same buffers. A rate is
// bytes read plus bytes written by the program per second of the thread's time; what a cache fetches before it overwrites
// is not counted.
#include "ballast/train/verb_bench_codecs.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "ballast/base/error.h"
#include "ballast/base/units.h"
#include "ballast/codec/block_kernels.h"
#include "ballast/codec/half.h"
#include "ballast/train/machine.h"
#include "ballast/train/median.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ballast {

namespace {

struct Settings {
  int64_t block = kDefaultBlock;
  int64_t elements = int64_t{1} << 25;  // 128 MiB of fp32
};

Settings parse_settings(const BenchOptions& options) {
  Settings settings;
  for (const std::string& one : options.overrides) {
    const size_t equal = one.find('=');
    const std::string key = one.substr(0, equal);
    if (equal == std::string::npos || (key != "block" && key != "elements")) {
      throw Error(ErrorKind::Usage, fmt::format("bench codecs has no setting '{}'", printable(one))).expected("block=N or elements=N");
    }
    const int64_t value = parse_count(one.substr(equal + 1));
    if (key == "elements" && (value < 1 || value > int64_t{1} << 32)) {
      throw Error(ErrorKind::Usage, "elements must be from 1 to 4294967296").at(one);
    }
    (key == "block" ? settings.block : settings.elements) = value;
  }
  return settings;
}

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};
using Buffer = std::unique_ptr<void, Free>;
Buffer buffer(int64_t bytes) {
  Buffer made(std::aligned_alloc(64, static_cast<size_t>((bytes + 63) / 64 * 64)));
  if (made == nullptr) throw Error(ErrorKind::OutOfMemory, "no memory for the benchmark's buffers").found(format_bytes(bytes)).cure("set elements=N lower");
  std::memset(made.get(), 0, static_cast<size_t>(bytes));  // its pages exist before the clock runs
  return made;
}

// A copy whose stores pass the caches by, as the C library's does only above a size of its own choosing.
void streaming_copy(const float* source, int64_t elements, float* target) {
  int64_t i = 0;
#if defined(__x86_64__)
  for (; i + 4 <= elements; i += 4) _mm_stream_ps(target + i, _mm_loadu_ps(source + i));
  _mm_sfence();
#endif
  for (; i < elements; ++i) target[i] = source[i];
}

// The thread's own time on a core: waiting for memory counts, the time slices of other programs do not.
double thread_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

struct Work {
  std::string codec, name;
  double bytes;
  std::function<void()> run;
  std::vector<double> seconds;
  double rate() const { return bytes / median(seconds); }
  double best() const { return bytes / *std::min_element(seconds.begin(), seconds.end()); }
};

const char* kernels_of(const CodecSpec& spec) {
  return spec.blocked() ? block_kernels(spec).front().name : spec.lossless() ? "copy" : half_kernels();
}

}  // namespace

int bench_codecs(const BenchOptions& options) {
  const Settings settings = parse_settings(options);
  const int64_t n = settings.elements;
  std::vector<CodecSpec> specs{{.name = "fp32"}, {.name = "bf16"}, {.name = "fp16"}};
  for (const char* name : {"int8", "int4"}) {
    specs.push_back({name, settings.block});
    specs.push_back({name, settings.block, false});
    specs.push_back({name, settings.block, true, true});
  }
  const Buffer source_memory = buffer(n * 4), result_memory = buffer(n * 4);
  float *const source = static_cast<float*>(source_memory.get()), *const result = static_cast<float*>(result_memory.get());
  for (int64_t i = 0; i < n; ++i) source[i] = static_cast<float>(static_cast<int32_t>(static_cast<uint32_t>(i) * 2654435761u)) * 0x1p-31f;

  std::vector<Work> works{{"", "memcpy", 8.0 * static_cast<double>(n), [&] { std::memcpy(result, source, static_cast<size_t>(n) * 4); }, {}},
                          {"", "streaming", 8.0 * static_cast<double>(n), [&] { streaming_copy(source, n, result); }, {}}};
  std::vector<Buffer> encodings;
  for (const CodecSpec& spec : specs) {
    const Codec& codec = codec_for(spec);
    const double bytes = static_cast<double>(codec.encoded_bytes(n)), plain = 4.0 * static_cast<double>(n);
    encodings.push_back(buffer(codec.encoded_bytes(n)));
    void* const encoded = encodings.back().get();
    works.push_back({spec.text(), "encode", plain + bytes, [&codec, encoded, source, n] { codec.encode(source, n, encoded, {1, 0}); }, {}});
    works.push_back({spec.text(), "decode", bytes + plain, [&codec, encoded, result, n] { codec.decode(encoded, n, result); }, {}});
    works.push_back({spec.text(), "decode_add", bytes + 2 * plain, [&codec, encoded, result, n] { codec.decode_add(encoded, n, result); }, {}});
  }
  constexpr int kWarmup = 1, kRounds = 7;
  for (int round = 0; round < kWarmup + kRounds; ++round) {
    for (Work& work : works) {
      const double began = thread_seconds();
      work.run();
      const double seconds = thread_seconds() - began;
      if (round >= kWarmup) work.seconds.push_back(seconds);
    }
  }

  const double copy = std::max(works[0].rate(), works[1].rate());
  nlohmann::json json{{"name", "codecs"},           {"elements", n}, {"copy_bytes_per_s", copy}, {"memcpy_bytes_per_s", works[0].rate()}, {"streaming_copy_bytes_per_s", works[1].rate()},
                      {"cpu_flags", cpu_flags()}, {"codecs", nlohmann::json::array()}};
  std::string table = fmt::format("{} fp32 numbers, one core; GB/s read + written (medians of {}) and share of the copy rate\ncopy {:.2f} (memcpy {:.2f}, streaming stores {:.2f})\n{:<28}{:<12}{:>16}{:>16}{:>16}\n",
                                  n, kRounds, copy / 1e9, works[0].rate() / 1e9, works[1].rate() / 1e9, "codec", "kernels", "encode", "decode", "decode_add");
  for (size_t s = 0; s < specs.size(); ++s) {
    nlohmann::json row{{"codec", specs[s].text()}, {"kernels", kernels_of(specs[s])}, {"bits_per_element", 8.0 * static_cast<double>(specs[s].encoded_bytes(n)) / static_cast<double>(n)}};
    table += fmt::format("{:<28}{:<12}", specs[s].text(), kernels_of(specs[s]));
    for (size_t k = 2 + 3 * s; k < 5 + 3 * s; ++k) {
      const Work& work = works[k];
      row[work.name] = {{"bytes_per_s", work.rate()}, {"best_bytes_per_s", work.best()}, {"share_of_copy", work.rate() / copy}};
      table += fmt::format("{:>8.2f} ({:>5.2f})", work.rate() / 1e9, work.rate() / copy);
    }
    json["codecs"].push_back(std::move(row));
    table += "\n";
  }
  std::cout << (options.json ? json.dump(2) + "\n" : table) << std::flush;
  return 0;
}

}  // namespace ballast
