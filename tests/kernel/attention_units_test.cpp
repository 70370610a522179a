// Attention over units cut from sequences: rings with merge, gathered keys, parts of heads; what nobody names stays as it was.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <random>

#include "kernel/attention_reference.h"

namespace ballast::kernel {
namespace {

using attention_test::error_of;
using attention_test::kMembers;
using attention_test::Outputs;

constexpr float kPoison = 7777.0f;
constexpr float kNothing = -std::numeric_limits<float>::infinity();

// One member's rows of all sequences, in two chunks each, with rows between that belong to nobody.
struct Member {
  std::vector<std::vector<RowSpan>> spans;  // per sequence
  at::Tensor tokens;                     // [rows]: which row of the whole it holds, -1 for nobody's
  int64_t rows() const { return tokens.size(0); }
  // A buffer of this member: its rows of the whole, `fill` elsewhere.
  at::Tensor take(const at::Tensor& whole, float fill) const {
    at::Tensor mine = at::full({rows(), whole.size(1)}, fill, whole.options());
    const at::Tensor own = tokens.ge(0).nonzero().squeeze(1);
    mine.index_copy_(0, own, whole.index_select(0, tokens.index_select(0, own)));
    return mine;
  }
  void add_to(const at::Tensor& whole, const at::Tensor& mine) const {
    const at::Tensor own = tokens.ge(0).nonzero().squeeze(1);
    at::Tensor sum = whole;
    sum.index_add_(0, tokens.index_select(0, own), mine.index_select(0, own).to(whole.scalar_type()));
  }
  bool untouched(const at::Tensor& mine) const {
    return mine.index_select(0, tokens.lt(0).nonzero().squeeze(1)).eq(kPoison).all().item<bool>();
  }
};

// Zig-zag: of 2 m chunks of every sequence, member i holds chunks i and 2 m - 1 - i.
std::vector<Member> zigzag(const std::vector<int64_t>& starts, int64_t members) {
  std::vector<Member> all(static_cast<size_t>(members));
  for (int64_t m = 0; m < members; ++m) {
    Member& member = all[static_cast<size_t>(m)];
    std::vector<int64_t> tokens{-1};
    for (size_t s = 0; s + 1 < starts.size(); ++s) {
      const int64_t n = starts[s + 1] - starts[s];
      member.spans.emplace_back();
      for (int64_t chunk : {m, 2 * members - 1 - m}) {
        const int64_t begin = n * chunk / (2 * members), end = n * (chunk + 1) / (2 * members);
        member.spans.back().push_back({static_cast<int64_t>(tokens.size()), end - begin, begin});
        for (int64_t i = begin; i < end; ++i) tokens.push_back(starts[s] + i);
        if ((chunk + static_cast<int64_t>(s)) % 2 == 0) tokens.push_back(-1);
      }
    }
    member.tokens = at::tensor(tokens, at::kLong);
  }
  return all;
}

std::vector<AttendUnit> units_of(const Member& queries, const Member& keys) {
  std::vector<AttendUnit> units;
  for (size_t s = 0; s < queries.spans.size(); ++s) units.push_back({queries.spans[s], keys.spans[s], s});
  return units;
}

struct Inputs {
  at::Tensor q, k, v, d_o;
};
Inputs random_inputs(const AttentionShape& shape, int64_t tokens, at::ScalarType dtype) {
  const auto random = [&](int64_t heads) { return at::randn({tokens, heads * shape.head_dim}).to(dtype); };
  return {random(shape.heads), random(shape.kv_heads), random(shape.kv_heads), random(shape.heads)};
}

// Every member's queries meet the keys of one member after the other.
Outputs run_ring(const AttentionShape& shape, const std::vector<int64_t>& starts, const AttentionDropout& dropout, const Inputs& in, int64_t count) {
  const std::vector<Member> members = zigzag(starts, count);
  const auto wide = at::TensorOptions().dtype(at::kFloat);
  Outputs sum{at::zeros_like(in.q, wide), at::zeros({in.q.size(0), shape.heads}, wide), at::zeros_like(in.q, wide), at::zeros_like(in.k, wide), at::zeros_like(in.v, wide)};
  double pairs = 0, expected = 0;
  for (const AttendUnit& unit : attention_test::whole(starts)) expected += visible_pairs(unit, shape.window);
  for (int64_t m = 0; m < count; ++m) {
    const Member& mine = members[static_cast<size_t>(m)];
    const auto poisoned = [&](int64_t rows, int64_t width) { return at::full({rows, width}, kPoison, wide); };
    const at::Tensor q = mine.take(in.q, NAN), d_o = mine.take(in.d_o, NAN);
    const at::Tensor o = poisoned(mine.rows(), q.size(1)), lse = poisoned(mine.rows(), shape.heads), dq = poisoned(mine.rows(), q.size(1));
    const at::Tensor delta = at::empty_like(lse);
    const auto step = [&](int64_t s) -> const Member& { return members[static_cast<size_t>((m + s) % count)]; };
    for (int64_t s = 0; s < count; ++s) {
      const std::vector<AttendUnit> units = units_of(mine, step(s));
      for (const AttendUnit& unit : units) pairs += visible_pairs(unit, shape.window);
      attention_forward(shape, units, dropout, q, step(s).take(in.k, NAN), step(s).take(in.v, NAN), o, lse, s > 0);
    }
    attention_delta(shape, o, d_o, delta);
    for (int64_t s = 0; s < count; ++s) {
      const at::Tensor k = step(s).take(in.k, NAN), v = step(s).take(in.v, NAN);
      const at::Tensor dk = poisoned(k.size(0), k.size(1)), dv = poisoned(k.size(0), k.size(1));
      attention_backward(shape, units_of(mine, step(s)), dropout, q, k, v, lse, delta, d_o, dq, dk, dv, s > 0);
      EXPECT_TRUE(step(s).untouched(dk) && step(s).untouched(dv));
      step(s).add_to(sum.dk, dk);
      step(s).add_to(sum.dv, dv);
    }
    EXPECT_TRUE(mine.untouched(o) && mine.untouched(lse) && mine.untouched(dq));
    mine.add_to(sum.o, o);
    mine.add_to(sum.lse, lse);
    mine.add_to(sum.dq, dq);
  }
  EXPECT_EQ(pairs, expected);
  return sum;
}

std::vector<AttentionShape> shapes() {
  return {{2, 1, 16, 0, 3}, {4, 2, 8, 37, 0}, {3, 3, 20, 1, 0}, {6, 2, 64, 130, 6}};
}
const std::vector<uint64_t> kKeys{11, 12, 13, 14, 15, 16};

TEST(AttentionUnits, RingsEqualWholeSequences) {
  at::manual_seed(5);
  std::mt19937_64 random(6);
  for (const AttentionShape& shape : shapes()) {
    for (int64_t members = 1; members <= 5; ++members) {
      std::vector<int64_t> starts{0, 0, 1, 4};  // chunks of no token and of one
      for (int64_t limit : {40, 200, 400}) starts.push_back(starts.back() + 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(limit)));
      for (at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
        const double p = (members % 2 == 0) == (dtype == at::kFloat) ? 0.2 : 0.0;
        const Inputs in = random_inputs(shape, starts.back(), dtype);
        AttentionDropout dropout;
        if (p > 0) dropout = {p, std::span(kKeys), {DropoutPlace::Attention, 2}};
        const Outputs ring = run_ring(shape, starts, dropout, in, members);
        const Outputs exact = attention_test::run_exact(shape, starts, dropout, in.q, in.k, in.v, in.d_o);
        for (auto member : kMembers) {
          if (shape.window == 1 && (member == &Outputs::dq || member == &Outputs::dk)) {  // one key: its weight is 1 whatever q and k are
            EXPECT_LE((ring.*member).abs().max().item<float>(), 3e-5f);
            continue;
          }
          EXPECT_LE(error_of(ring.*member, exact.*member), 1e-5) << members << " members, head_dim " << shape.head_dim << " " << dtype << " p " << p;
        }
      }
    }
  }
}

// All keys of the sequences in one buffer, the queries of one member: the rows that it holds of the whole result, in the compute dtype.
TEST(AttentionUnits, GatheredKeysGiveTheRowsOfTheWhole) {
  at::manual_seed(7);
  const std::vector<int64_t> starts{0, 3, 250, 251, 600};
  for (const AttentionShape& shape : shapes()) {
    for (at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      const Inputs in = random_inputs(shape, starts.back(), dtype);
      const Outputs exact = attention_test::run_exact(shape, starts, {}, in.q, in.k, in.v, in.d_o);
      at::Tensor dk = at::zeros_like(in.k, at::kDouble), dv = at::zeros_like(dk);
      const double bound = dtype == at::kFloat ? 1e-5 : 4e-3;
      for (const Member& mine : zigzag(starts, 3)) {
        std::vector<AttendUnit> units;
        for (size_t s = 0; s + 1 < starts.size(); ++s) units.push_back({mine.spans[s], {{starts[s], starts[s + 1] - starts[s], 0}}, s});
        const at::Tensor q = mine.take(in.q, NAN), d_o = mine.take(in.d_o, NAN);
        const at::Tensor o = at::full_like(q, kPoison), dq = at::full_like(q, kPoison), lse = at::full({mine.rows(), shape.heads}, kPoison, at::kFloat);
        const at::Tensor delta = at::empty_like(lse), dk_part = at::full_like(in.k, NAN), dv_part = at::full_like(in.v, NAN);
        attention_forward(shape, units, {}, q, in.k, in.v, o, lse);
        attention_delta(shape, o, d_o, delta);
        attention_backward(shape, units, {}, q, in.k, in.v, lse, delta, d_o, dq, dk_part, dv_part);
        dk += dk_part, dv += dv_part;
        EXPECT_TRUE(mine.untouched(o) && mine.untouched(lse) && mine.untouched(dq));
        EXPECT_LE(error_of(o, mine.take(exact.o, kPoison)), bound);
        EXPECT_LE(error_of(lse, mine.take(exact.lse, kPoison)), 1e-5);
        const at::Tensor found = at::zeros_like(in.q, at::kDouble), wanted = at::zeros_like(found);
        mine.add_to(found, dq), mine.add_to(wanted, mine.take(exact.dq, 0.0f));
        if (shape.window != 1) { EXPECT_LE(error_of(found, wanted), bound); }
      }
      EXPECT_LE(error_of(dv, exact.dv), bound);
      if (shape.window != 1) { EXPECT_LE(error_of(dk, exact.dk), bound); }
    }
  }
}

TEST(AttentionUnits, QueriesThatSeeNothing) {
  const AttentionShape shape{2, 1, 4, 5};
  for (at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const at::Tensor q = at::randn({6, 8}).to(dtype), k = at::randn({6, 4}).to(dtype), v = at::randn({6, 4}).to(dtype), d_o = at::randn({6, 8}).to(dtype);
    // Keys after the queries, keys behind the window, no keys, no queries.
    const std::vector<AttendUnit> units{{{{0, 2, 0}}, {{0, 2, 2}}, 0}, {{{2, 2, 50}}, {{2, 2, 44}}, 1}, {{{4, 2, 3}}, {}, 2}, {{}, {{4, 2, 0}}, 3}};
    const at::Tensor o = at::full_like(q, NAN), lse = at::full({6, 2}, NAN, at::kFloat), delta = at::empty_like(lse);
    attention_forward(shape, units, {}, q, k, v, o, lse);
    EXPECT_TRUE(o.eq(0).all().item<bool>());
    EXPECT_TRUE(lse.eq(kNothing).all().item<bool>());
    attention_delta(shape, o, d_o, delta);
    const at::Tensor dq = at::full_like(q, NAN), dk = at::full_like(k, NAN), dv = at::full_like(v, NAN);
    attention_backward(shape, units, {}, q, k, v, lse, delta, d_o, dq, dk, dv);
    for (const at::Tensor* t : {&dq, &dk, &dv}) EXPECT_TRUE(t->eq(0).all().item<bool>());
    // Again nothing, merged; then something, merged with nothing.
    attention_forward(shape, units, {}, q, k, v, o, lse, true);
    EXPECT_TRUE(o.eq(0).all().item<bool>() && lse.eq(kNothing).all().item<bool>());
    const std::vector<AttendUnit> self{{{{0, 6, 0}}, {{0, 6, 0}}, 0}};
    const at::Tensor direct = at::empty_like(o), direct_lse = at::empty_like(lse);
    attention_forward(shape, self, {}, q, k, v, direct, direct_lse);
    o.fill_(NAN);  // a result without keys holds nothing
    attention_forward(shape, self, {}, q, k, v, o, lse, true);
    EXPECT_TRUE(at::equal(o, direct) && at::equal(lse, direct_lse));
    // A query whose log-sum-exp says that it saw nothing sends nothing back.
    lse.select(0, 3).fill_(kNothing);
    delta.zero_();
    attention_backward(shape, self, {}, q, k, v, lse, delta, d_o, dq, dk, dv);
    EXPECT_TRUE(dq[3].eq(0).all().item<bool>());
    for (const at::Tensor* t : {&dq, &dk, &dv}) EXPECT_TRUE(t->isfinite().all().item<bool>());
  }
}

TEST(AttentionUnits, OneMergeOfAllPartsEqualsTheWhole) {
  at::manual_seed(8);
  const std::vector<int64_t> starts{0, 90, 333};
  for (const AttentionShape& shape : shapes()) {
    const Inputs in = random_inputs(shape, starts.back(), at::kFloat);
    const Outputs exact = attention_test::run_exact(shape, starts, {}, in.q, in.k, in.v, in.d_o);
    std::vector<at::Tensor> parts, lses;
    for (int64_t part = 0; part < 3; ++part) {
      std::vector<AttendUnit> units = attention_test::whole(starts);
      for (AttendUnit& unit : units) {
        const RowSpan all = unit.keys[0];
        const int64_t begin = all.count * part / 3, end = all.count * (part + 1) / 3;
        unit.keys = {{all.row + begin, end - begin, begin}};
      }
      parts.push_back(at::full_like(in.q, NAN));
      lses.push_back(at::full({starts.back(), shape.heads}, NAN, at::kFloat));
      attention_forward(shape, units, {}, in.q, in.k, in.v, parts.back(), lses.back());
    }
    parts.push_back(at::full_like(in.q, NAN));
    lses.push_back(at::full({starts.back(), shape.heads}, kNothing, at::kFloat));
    for (at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      const at::Tensor o = at::full_like(in.q, NAN, at::TensorOptions().dtype(dtype)), lse = at::full_like(lses[0], NAN);
      attention_merge(shape, parts, lses, o, lse);
      EXPECT_LE(error_of(o, exact.o), dtype == at::kFloat ? 1e-6 : 4e-3);
      EXPECT_LE(error_of(lse, exact.lse), 1e-6);
    }
    const at::Tensor o = at::empty_like(in.q), lse = at::empty_like(lses[0]);
    attention_merge(shape, std::span(parts).subspan(3), std::span(lses).subspan(3), o, lse);
    EXPECT_TRUE(o.eq(0).all().item<bool>() && lse.eq(kNothing).all().item<bool>());
    attention_merge(shape, parts, lses, parts[0], lses[0]);  // into one of the parts
    EXPECT_LE(error_of(parts[0], exact.o), 1e-6);
    EXPECT_LE(error_of(lses[0], exact.lse), 1e-6);
  }
}

TEST(AttentionUnits, PartsOfTheHeadsEqualTheWhole) {
  at::manual_seed(9);
  const std::vector<int64_t> starts{0, 70, 201};
  const AttentionShape shape{6, 3, 8, 90};
  const int64_t tokens = starts.back(), count = 3;
  const AttentionDropout dropout{0.3, std::span(kKeys).first(2), {DropoutPlace::Attention, 1}};
  const Inputs in = random_inputs(shape, tokens, at::kFloat);
  const Outputs exact = attention_test::run_exact(shape, starts, dropout, in.q, in.k, in.v, in.d_o);
  const auto split = [&](const at::Tensor& x) {
    at::Tensor y = at::full({count * tokens, x.size(1) / count}, NAN);
    split_heads(x, count, y);
    return y;
  };
  const at::Tensor q = split(in.q), k = split(in.k), v = split(in.v), o = at::full_like(q, NAN), lse = at::full({count * tokens, 2}, NAN);
  for (int64_t part = 0; part < count; ++part) {
    const auto rows = [&](const at::Tensor& t) { return t.narrow(0, part * tokens, tokens); };
    attention_forward({2, 1, 8, 90, part * 2}, attention_test::whole(starts), dropout, rows(q), rows(k), rows(v), rows(o), rows(lse));
  }
  const at::Tensor joined = at::full_like(in.q, NAN), joined_lse = at::full({tokens, 6}, NAN);
  join_heads(o, count, joined);
  join_heads(lse, count, joined_lse);
  EXPECT_LE(error_of(joined, exact.o), 1e-6);
  EXPECT_LE(error_of(joined_lse, exact.lse), 1e-6);
}

TEST(SplitHeads, MovesColumnsToRows) {
  for (at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const at::Tensor x = at::randn({5, 12}).to(dtype), y = at::empty({20, 3}, x.options()), back = at::empty_like(x);
    split_heads(x, 4, y);
    for (int64_t part = 0; part < 4; ++part) EXPECT_TRUE(at::equal(y.narrow(0, part * 5, 5), x.narrow(1, part * 3, 3)));
    join_heads(y, 4, back);
    EXPECT_TRUE(at::equal(back, x));
  }
}

TEST(AttentionUnits, ThreadsDoNotChangeABit) {
  at::manual_seed(10);
  const std::vector<int64_t> starts{0, 5, 200, 650};
  const AttentionShape shape{6, 2, 64, 130};
  const int before = at::get_num_threads();
  for (at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const Inputs in = random_inputs(shape, starts.back(), dtype);
    at::set_num_threads(1);
    const Outputs one = run_ring(shape, starts, {}, in, 2);
    at::set_num_threads(2);
    const Outputs two = run_ring(shape, starts, {}, in, 2);
    for (auto member : kMembers) EXPECT_TRUE(at::equal(one.*member, two.*member));
  }
  at::set_num_threads(before);
}

}  // namespace
}  // namespace ballast::kernel
