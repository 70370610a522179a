// A part of the heads, as a segment's call names it, gives the columns of the whole; scratch of attention to the byte.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "ballast/kernel/allocator.h"
#include "model/segments_chain.h"

namespace ballast::segments_test {
namespace {

TEST(AttendParts, GiveTheColumnsOfTheWhole) {
  ModelConfig config = preset("gpt2-tiny");
  config.heads = 8, config.kv_heads = 4, config.head_dim = 16, config.dropout_attention = 0.2, config.window = {0, 33};
  const MicroBatch batch = random_batch(config, {70, 1, 133}, 3);
  const std::vector<AttendUnit> units = whole_sequences(batch);
  const RoleTensors none;
  for (int64_t layer : {0, 1}) {
    const auto random = [&](int64_t heads) { return at::randn({batch.tokens(), heads * 16}); };
    const at::Tensor q = random(8), k = random(4), v = random(4), d_o = random(8);
    struct Result {
      at::Tensor o, lse, dq, dk, dv;
    };
    const auto attend = [&](int64_t part, int64_t parts) {
      SegmentCall call{config, layer, batch, none, none, true, 5};
      call.heads_part = part, call.heads_parts = parts;
      const auto columns = [&](const at::Tensor& t) { return t.chunk(parts, 1)[static_cast<size_t>(part)].contiguous(); };
      const at::Tensor x = columns(q), y = columns(k), z = columns(v), upper = columns(d_o);
      Result r{at::full_like(x, NAN), at::full({x.size(0), 8 / parts}, NAN), at::full_like(x, NAN), at::full_like(y, NAN), at::full_like(z, NAN)};
      const at::Tensor delta = at::full_like(r.lse, NAN);
      attend_forward(call, units, x, y, z, r.o, r.lse);
      attend_delta(call, r.o, upper, delta);
      attend_backward(call, units, x, y, z, r.lse, delta, upper, r.dq, r.dk, r.dv);
      return r;
    };
    const Result whole = attend(0, 1);
    std::vector<Result> parts;
    for (int64_t part = 0; part < 4; ++part) parts.push_back(attend(part, 4));
    for (auto member : {&Result::o, &Result::lse, &Result::dq, &Result::dk, &Result::dv}) {
      std::vector<at::Tensor> columns;
      for (const Result& part : parts) columns.push_back(part.*member);
      EXPECT_LE(relative_error(at::cat(columns, 1), whole.*member), 1e-6);
    }
  }
}

TEST(AttendParts, ScratchIsExact) {
  install_allocator();
  const ModelConfig config = preset("gpt2-tiny");
  const RoleTensors none;
  const MicroBatch batch = random_batch(config, {200, 30, 1}, 3);
  const std::vector<AttendUnit> units = whole_sequences(batch);
  const SegmentCall call{config, 0, batch, none, none};
  for (DType compute : {DType::Float32, DType::BFloat16}) {
    const auto random = [&] { return at::randn({batch.tokens(), config.query_width()}).to(type_of(compute)); };
    const at::Tensor q = random(), k = random(), v = random(), o = random(), dq = random(), dk = random(), dv = random();
    const at::Tensor lse = at::empty({batch.tokens(), config.heads}), delta = at::zeros_like(lse);
    for (bool backward : {false, true}) {
      reset_peak();
      const int64_t before = current_bytes();
      if (backward) attend_backward(call, units, q, k, v, lse, delta, o, dq, dk, dv);
      else attend_forward(call, units, q, k, v, o, lse);
      EXPECT_EQ(peak_bytes() - before, attend_scratch_bytes(config, units, compute, backward, at::get_num_threads())) << name_of(compute) << backward;
    }
  }
}

}  // namespace
}  // namespace ballast::segments_test
