// What the segments take from the allocator stays below plan's bound, and the bound is not idle.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "ballast/kernel/allocator.h"
#include "ballast/kernel/gemm.h"
#include "model/segments_chain.h"

namespace ballast::segments_test {
namespace {

struct Measured {
  int64_t peak, bound;
  std::string name;
};

// Peak scratch of every call of one block and the head beside its bound.
std::vector<Measured> measure(const ModelConfig& config, const Parameters& p, const std::vector<int64_t>& lengths, DType compute) {
  const MicroBatch batch = random_batch(config, lengths, 3, true);
  const int64_t tokens = batch.tokens(), threads = at::get_num_threads();
  const auto outputs = [&](SegmentKind kind) { return buffers(outputs_of(kind, config, tokens, compute)); };
  std::vector<Measured> result;
  const std::vector<AttendUnit> units = whole_sequences(batch);
  const auto record = [&](SegmentKind kind, bool backward, auto&& f) {
    reset_peak();
    const int64_t before = current_bytes();
    f();
    const int64_t bound = kind == SegmentKind::Attend ? attend_scratch_bytes(config, units, compute, backward, threads)
                                                      : scratch_bytes(kind, config, tokens, compute, backward, threads);
    result.push_back({peak_bytes() - before, bound,
                      std::string(name_of(kind)) + (backward ? " backward" : " forward")});
  };
  const SegmentCall embedding{config, -1, batch, p.weights.front(), p.gradients.front(), true, 5};
  const SegmentCall block{config, 0, batch, p.weights[1], p.gradients[1], true, 5};
  const SegmentCall head{config, -1, batch, p.weights.back(), p.gradients.back(), true, 5};
  at::Tensor x = outputs(SegmentKind::Embedding)[0], y = at::empty_like(x), dx = at::empty_like(x);
  auto qkv = outputs(SegmentKind::Project), attended = outputs(SegmentKind::Attend);
  auto d_qkv = outputs(SegmentKind::Project);
  at::Tensor d_o = at::empty_like(attended[0]), delta = at::empty_like(attended[1]), losses = outputs(SegmentKind::Head)[0];
  const Saved project = buffers(saved_of(SegmentKind::Project, config, tokens, compute));
  const Saved finish = buffers(saved_of(SegmentKind::Finish, config, tokens, compute));
  record(SegmentKind::Embedding, false, [&] { embedding_forward(embedding, x); });
  record(SegmentKind::Project, false, [&] { project_forward(block, x, qkv[0], qkv[1], qkv[2], project); });
  record(SegmentKind::Attend, false, [&] { attend_forward(block, units, qkv[0], qkv[1], qkv[2], attended[0], attended[1]); });
  record(SegmentKind::Finish, false, [&] { finish_forward(block, x, attended[0], y, finish); });
  record(SegmentKind::Head, true, [&] { head_train(head, y, 1.0, dx, losses); });
  record(SegmentKind::Finish, true, [&] { finish_backward(block, x, attended[0], finish, dx, d_o); });
  attend_delta(block, attended[0], d_o, delta);
  record(SegmentKind::Attend, true, [&] {
    attend_backward(block, units, qkv[0], qkv[1], qkv[2], attended[1], delta, d_o, d_qkv[0], d_qkv[1], d_qkv[2]);
  });
  record(SegmentKind::Project, true, [&] { project_backward(block, x, project, d_qkv[0], d_qkv[1], d_qkv[2], dx); });
  record(SegmentKind::Embedding, true, [&] { embedding_backward(embedding, dx); });
  return result;
}

// One layer of real width, with a vocabulary that does not make the test slow.
std::vector<Case> wide_cases() {
  std::vector<Case> cases;
  for (const char* name : {"gpt2-tiny", "llama-60m"}) {
    ModelConfig config = preset(name);
    config.layers = 1;
    config.vocab_size = 9001;
    cases.push_back({name, config});
  }
  return cases;
}

TEST(Scratch, StaysBelowTheBound) {
  install_allocator();
  std::vector<Case> all = cases();
  for (const Case& wide : wide_cases()) all.push_back(wide);
  for (const Case& c : all) {
    for (DType compute : {DType::Float32, DType::BFloat16}) {
      const Parameters p = random_parameters(c.config, type_of(compute), 11);
      for (const std::vector<int64_t>& lengths : {std::vector<int64_t>{250}, std::vector<int64_t>{1}, std::vector<int64_t>{3, 1, 60, 20}}) {
        for (kernel::Bf16Products mode : {kernel::Bf16Products::Converted, kernel::Bf16Products::Native}) {
          // bf16 units are needed for speed, not for results; large native products would take minutes without them.
          if (mode == kernel::Bf16Products::Native && (compute == DType::Float32 || c.config.hidden > 100)) continue;
          const kernel::Bf16Products before = kernel::bf16_products();
          kernel::set_bf16_products(mode);
          for (const Measured& m : measure(c.config, p, lengths, compute))
            EXPECT_LE(m.peak, m.bound) << c.name << " " << m.name << " " << name_of(compute) << " first length " << lengths[0];
          kernel::set_bf16_products(before);
        }
      }
    }
  }
}

TEST(Scratch, BoundIsWithinTwiceTheNeedOfLargeSegments) {
  install_allocator();
  const kernel::Bf16Products before = kernel::bf16_products();
  kernel::set_bf16_products(kernel::Bf16Products::Converted);
  for (const Case& c : wide_cases()) {
    for (DType compute : {DType::Float32, DType::BFloat16}) {
      const Parameters p = random_parameters(c.config, type_of(compute), 11);
      for (const Measured& m : measure(c.config, p, {512}, compute)) {
        if (m.name.find("embedding") != std::string::npos) continue;  // takes none
        EXPECT_GE(2 * m.peak, m.bound) << c.name << " " << m.name << " " << name_of(compute);
      }
    }
  }
  kernel::set_bf16_products(before);
}

}  // namespace
}  // namespace ballast::segments_test
