// One GPT-2 124M block, forward and backward, and the head with its loss, at 512 tokens in fp32 and bf16: what a training
// step is made of. Arguments: tokens, sequences, 1 = bf16. Counter gflops: model FLOPs per second.
#include <ATen/ATen.h>
#include <benchmark/benchmark.h>

#include "ballast/kernel/allocator.h"
#include "ballast/model/segments.h"
#include "ballast/plan/activations.h"

namespace {

using namespace ballast;

struct Setup {
  ModelConfig config = preset("gpt2-124m");
  DType compute;
  MicroBatch batch;
  RoleTensors block_weights, block_gradients, head_weights, head_gradients;

  Setup(int64_t tokens, int64_t sequences, bool bf16) : compute(bf16 ? DType::BFloat16 : DType::Float32) {
    install_allocator();
    at::manual_seed(1);
    batch.starts = {0};
    for (int64_t s = 0; s < sequences; ++s) {
      batch.starts.push_back(batch.starts.back() + tokens / sequences);
      batch.sample_keys.push_back(static_cast<uint64_t>(s));
    }
    batch.ids = at::randint(config.vocab_size, {batch.tokens()}, at::kLong);
    batch.targets = at::randint(config.vocab_size, {batch.tokens()}, at::kLong);
    batch.positions = at::arange(batch.tokens(), at::kLong).remainder(tokens / sequences);
    const ModelShape shape = describe(config);
    const auto fill = [&](int64_t group, RoleTensors& weights, RoleTensors& gradients) {
      for (const ParameterTensor& tensor : shape.groups[static_cast<size_t>(group)].tensors) {
        weights[static_cast<size_t>(tensor.role)] = (at::randn(tensor.shape) * 0.02).to(type());
        gradients[static_cast<size_t>(tensor.role)] = at::zeros(tensor.shape);
      }
    };
    fill(2, block_weights, block_gradients);
    for (int64_t group : shape.segments.back().groups) fill(group, head_weights, head_gradients);
  }

  at::ScalarType type() const { return compute == DType::BFloat16 ? at::kBFloat16 : at::kFloat; }
  std::vector<at::Tensor> buffers(const std::vector<TensorSpec>& specs) const {
    std::vector<at::Tensor> tensors;
    for (const TensorSpec& spec : specs) tensors.push_back(at::zeros(spec.shape, spec.dtype == DType::BFloat16 ? at::kBFloat16 : at::kFloat));
    return tensors;
  }
};

double per_second(double flops, const benchmark::State& state) { return flops * static_cast<double>(state.iterations()) / 1e9; }

void block(benchmark::State& state) {
  const Setup setup(state.range(0), state.range(1), state.range(2) != 0);
  const int64_t tokens = setup.batch.tokens();
  const auto outputs = [&](SegmentKind kind) { return setup.buffers(outputs_of(kind, setup.config, tokens, setup.compute)); };
  const SegmentCall call{setup.config, 0, setup.batch, setup.block_weights, setup.block_gradients};
  const at::Tensor x = at::randn({tokens, setup.config.hidden}).to(setup.type());
  at::Tensor y = at::empty_like(x), dx = at::empty_like(x);
  auto qkv = outputs(SegmentKind::Project), d_qkv = outputs(SegmentKind::Project), attended = outputs(SegmentKind::Attend);
  at::Tensor d_o = at::empty_like(attended[0]), delta = at::empty_like(attended[1]);
  const std::vector<AttendUnit> units = whole_sequences(setup.batch);
  const Saved project = setup.buffers(saved_of(SegmentKind::Project, setup.config, tokens, setup.compute));
  const Saved finish = setup.buffers(saved_of(SegmentKind::Finish, setup.config, tokens, setup.compute));
  for (auto _ : state) {
    project_forward(call, x, qkv[0], qkv[1], qkv[2], project);
    attend_forward(call, units, qkv[0], qkv[1], qkv[2], attended[0], attended[1]);
    finish_forward(call, x, attended[0], y, finish);
    dx.copy_(y);
    finish_backward(call, x, attended[0], finish, dx, d_o);
    attend_delta(call, attended[0], d_o, delta);
    attend_backward(call, units, qkv[0], qkv[1], qkv[2], attended[1], delta, d_o, d_qkv[0], d_qkv[1], d_qkv[2]);
    project_backward(call, x, project, d_qkv[0], d_qkv[1], d_qkv[2], dx);
  }
  std::vector<int64_t> lengths(static_cast<size_t>(state.range(1)), tokens / state.range(1));
  const double linear = 6.0 * 12 * 768 * 768 * static_cast<double>(tokens), attention = attention_flops(setup.config, lengths) / 12;
  state.counters["gflops"] = benchmark::Counter(per_second(linear + attention, state), benchmark::Counter::kIsRate);
}
BENCHMARK(block)->Args({512, 1, 0})->Args({512, 1, 1})->Args({512, 32, 0})->Unit(benchmark::kMillisecond)->UseRealTime();

void attend(benchmark::State& state) {
  const Setup setup(state.range(0), state.range(1), state.range(2) != 0);
  const int64_t tokens = setup.batch.tokens();
  const SegmentCall call{setup.config, 0, setup.batch, setup.block_weights, setup.block_gradients};
  const auto random = [&] { return at::randn({tokens, 768}).to(setup.type()); };
  const at::Tensor q = random(), k = random(), v = random(), d_o = random();
  at::Tensor o = random(), dq = random(), dk = random(), dv = random(), lse = at::empty({tokens, 12}), delta = at::empty_like(lse);
  const std::vector<AttendUnit> units = whole_sequences(setup.batch);
  for (auto _ : state) {
    attend_forward(call, units, q, k, v, o, lse);
    attend_delta(call, o, d_o, delta);
    attend_backward(call, units, q, k, v, lse, delta, d_o, dq, dk, dv);
  }
  std::vector<int64_t> lengths(static_cast<size_t>(state.range(1)), tokens / state.range(1));
  state.counters["gflops"] = benchmark::Counter(per_second(attention_flops(setup.config, lengths) / 12, state), benchmark::Counter::kIsRate);
}
BENCHMARK(attend)->Args({512, 1, 0})->Args({512, 1, 1})->Args({512, 32, 0})->Unit(benchmark::kMillisecond)->UseRealTime();

void head(benchmark::State& state) {
  const Setup setup(state.range(0), state.range(1), state.range(2) != 0);
  const int64_t tokens = setup.batch.tokens();
  const SegmentCall call{setup.config, -1, setup.batch, setup.head_weights, setup.head_gradients};
  const at::Tensor x = at::randn({tokens, setup.config.hidden}).to(setup.type());
  at::Tensor dx = at::empty_like(x), losses = at::empty({tokens});
  for (auto _ : state) head_train(call, x, 1.0 / static_cast<double>(tokens), dx, losses);
  const double linear = 6.0 * 768 * 50257 * static_cast<double>(tokens);
  state.counters["gflops"] = benchmark::Counter(per_second(linear, state), benchmark::Counter::kIsRate);
}
BENCHMARK(head)->Args({512, 1, 0})->Args({512, 1, 1})->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
