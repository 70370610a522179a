// The block codecs' kernels in cache and out of it: encode, decode and decode_add of one run, and a fused sum of four.
#include <benchmark/benchmark.h>

#include <vector>

#include "ballast/codec/block_kernels.h"
#include "ballast/codec/transcode.h"

namespace {

using namespace ballast;

struct Run {
  Run(const CodecSpec& spec, int64_t elements)
      : codec(make_block_codec(spec, block_kernels(spec).front())),
        values(static_cast<size_t>(elements)),
        encoded(static_cast<size_t>(codec->encoded_bytes(elements))) {
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * 2654435761u % 1000) - 500;
    codec->encode(values.data(), elements, encoded.data());
  }
  std::unique_ptr<Codec> codec;
  std::vector<float> values;
  std::vector<char> encoded;
};

CodecSpec spec_of(const char* name, bool stochastic) {
  CodecSpec spec = parse_codec(name);
  spec.stochastic = stochastic;
  return spec;
}

void report(benchmark::State& state, const Run& run) {
  state.SetLabel(block_kernels(run.codec->spec()).front().name);
  state.SetBytesProcessed(state.iterations() * (state.range(0) * 4 + std::ssize(run.encoded)));
}

void encode(benchmark::State& state, const char* name, bool stochastic) {
  Run run(spec_of(name, stochastic), state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(run.codec->encode(run.values.data(), state.range(0), run.encoded.data()));
  report(state, run);
}

void decode(benchmark::State& state, const char* name) {
  Run run(spec_of(name, false), state.range(0));
  for (auto _ : state) {
    run.codec->decode(run.encoded.data(), state.range(0), run.values.data());
    benchmark::ClobberMemory();
  }
  report(state, run);
}

void sum_of_four(benchmark::State& state, const char* name, bool feedback) {
  Run run(spec_of(name, false), state.range(0));
  const std::vector<const void*> parts(4, run.encoded.data());
  std::vector<char> target(run.encoded.size());
  std::vector<char> image(static_cast<size_t>(feedback_bytes(run.codec->spec(), state.range(0))));
  SumTarget into;
  into.codec = run.codec.get();
  into.encoded = target.data();
  if (feedback) into.feedback.image = image.data();
  for (auto _ : state) benchmark::DoNotOptimize(sum_parts(*run.codec, parts, state.range(0), into));
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

constexpr int64_t kInCache = 1 << 16, kInMemory = 1 << 24;

BENCHMARK_CAPTURE(encode, int8, "int8", false)->Arg(kInCache)->Arg(kInMemory);
BENCHMARK_CAPTURE(encode, int4, "int4", false)->Arg(kInCache)->Arg(kInMemory);
BENCHMARK_CAPTURE(encode, int8_stochastic, "int8", true)->Arg(kInCache)->Arg(kInMemory);
BENCHMARK_CAPTURE(encode, int4_stochastic, "int4", true)->Arg(kInCache)->Arg(kInMemory);
BENCHMARK_CAPTURE(decode, int8, "int8")->Arg(kInCache)->Arg(kInMemory);
BENCHMARK_CAPTURE(decode, int4, "int4")->Arg(kInCache)->Arg(kInMemory);
BENCHMARK_CAPTURE(sum_of_four, int4, "int4", false)->Arg(kInCache);
BENCHMARK_CAPTURE(sum_of_four, int4_feedback, "int4", true)->Arg(kInCache);

}  // namespace
