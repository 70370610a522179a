// f and f' in registers, one pass over memory:
//   gelu tanh  f = x s, s = sigmoid(2 z), z = sqrt(2/pi) (x + 0.044715 x^3);  f' = s + 2 x s (1 - s) z'
//   gelu       f = x Phi(x);                                                  f' = Phi(x) + x phi(x)
//   silu       f = x s, s = sigmoid(x);                                       f' = s + x s (1 - s)
#include "ballast/kernel/activation.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>

#include "ballast/kernel/vector.h"

namespace ballast::kernel {
namespace {

struct Value {
  float f, slope;
};

template <Activation kind>
BALLAST_INLINE Value evaluate(float x) {
  if constexpr (kind == Activation::GeluTanh) {
    constexpr float kRoot = 0.7978845608f, kCubic = 0.044715f;
    const float s = sigmoid(2.0f * kRoot * (x + kCubic * x * x * x));
    return {x * s, s + 2.0f * x * s * (1.0f - s) * kRoot * (1.0f + 3.0f * kCubic * x * x)};
  } else if constexpr (kind == Activation::Gelu) {
    const float phi = 0.5f * std::erfc(-x * 0.7071067812f);
    return {x * phi, phi + x * 0.3989422804f * exp_approximate(-0.5f * x * x)};
  } else if constexpr (kind == Activation::Relu) {
    return {x > 0 ? x : 0.0f, x > 0 ? 1.0f : 0.0f};
  } else {
    const float s = sigmoid(x);
    return {x * s, s + x * s * (1.0f - s)};
  }
}

template <Activation kind, class U, class Y>
struct Forward {
  BALLAST_INLINE static void run(const U* u, Y* y, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) store(y + i, evaluate<kind>(load(u + i)).f);
  }
};

template <Activation kind, class U, class D, class Y>
struct Backward {
  BALLAST_INLINE static void run(const U* u, const D* dy, D* du, Y* y, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
      const Value value = evaluate<kind>(load(u + i));
      store(du + i, load(dy + i) * value.slope);
      store(y + i, value.f);
    }
  }
};

template <Activation kind, class U, class Y>
struct GatedForward {
  BALLAST_INLINE static void run(const U* gate, const U* up, Y* y, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) store(y + i, evaluate<kind>(load(gate + i)).f * load(up + i));
  }
};

template <Activation kind, class U, class D>
struct GatedBackward {
  BALLAST_INLINE static void run(const U* gate, const U* up, const D* dy, D* d_gate, D* d_up, D* y, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
      const Value value = evaluate<kind>(load(gate + i));
      const float u = load(up + i), d = load(dy + i);
      store(d_gate + i, d * u * value.slope);
      store(d_up + i, d * value.f);
      store(y + i, value.f * u);
    }
  }
};

template <class A, class Y>
struct AddTo {
  BALLAST_INLINE static void run(const A* a, const Y* b, Y* y, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) store(y + i, load(a + i) + load(b + i));
  }
};

// Calls f with the kind as a constant: f.operator()<kind>().
template <class F>
void with_kind(Activation kind, F&& f) {
  switch (kind) {
    case Activation::GeluTanh: return f.template operator()<Activation::GeluTanh>();
    case Activation::Gelu: return f.template operator()<Activation::Gelu>();
    case Activation::Relu: return f.template operator()<Activation::Relu>();
    case Activation::Silu: return f.template operator()<Activation::Silu>();
  }
}

template <class F>
void over_ranges(const at::Tensor& t, F&& f) {
  at::parallel_for(0, t.numel(), 32768, [&](int64_t begin, int64_t end) { f(begin, end - begin); });
}

void check_flat(const at::Tensor& a, const at::Tensor& b) {
  BALLAST_CHECK(a.is_contiguous() && b.is_contiguous() && a.numel() == b.numel(), "elementwise kernels take equal contiguous tensors");
}

}  // namespace

void activate(Activation kind, const at::Tensor& u, const at::Tensor& y) {
  check_flat(u, y);
  with_element(u, [&]<class U>(U*) {
    with_element(y, [&]<class Y>(Y*) {
      with_kind(kind, [&]<Activation k>() {
        over_ranges(u, [&](int64_t i, int64_t n) { run<Forward<k, U, Y>>(pointer<U>(u) + i, pointer<Y>(y) + i, n); });
      });
    });
  });
}

void activate_backward(Activation kind, const at::Tensor& u, const at::Tensor& dy, const at::Tensor& du, const at::Tensor& y) {
  check_flat(u, dy);
  check_flat(u, du);
  BALLAST_CHECK(dy.scalar_type() == du.scalar_type() && (!y.defined() || y.scalar_type() == du.scalar_type()), "gradients of one dtype");
  with_element(u, [&]<class U>(U*) {
    with_element(dy, [&]<class D>(D*) {
      with_kind(kind, [&]<Activation k>() {
        over_ranges(u, [&](int64_t i, int64_t n) {
          if (y.defined()) return run<Backward<k, U, D, D>>(pointer<U>(u) + i, pointer<D>(dy) + i, pointer<D>(du) + i, pointer<D>(y) + i, n);
          // The same code, whose roundings another loop need not share, with values that nobody reads.
          D values[512];
          for (int64_t end = i + n; i < end; i += 512)
            run<Backward<k, U, D, D>>(pointer<U>(u) + i, pointer<D>(dy) + i, pointer<D>(du) + i, static_cast<D*>(values), std::min<int64_t>(512, end - i));
        });
      });
    });
  });
}

void activate_gated(Activation kind, const at::Tensor& gate, const at::Tensor& up, const at::Tensor& y) {
  check_flat(gate, up);
  check_flat(gate, y);
  with_element(gate, [&]<class U>(U*) {
    with_element(y, [&]<class Y>(Y*) {
      with_kind(kind, [&]<Activation k>() {
        over_ranges(gate, [&](int64_t i, int64_t n) {
          run<GatedForward<k, U, Y>>(pointer<U>(gate) + i, pointer<U>(up) + i, pointer<Y>(y) + i, n);
        });
      });
    });
  });
}

void activate_gated_backward(Activation kind, const at::Tensor& gate, const at::Tensor& up, const at::Tensor& dy,
                             const at::Tensor& d_gate, const at::Tensor& d_up, const at::Tensor& y) {
  check_flat(gate, up);
  check_flat(gate, dy);
  BALLAST_CHECK(dy.scalar_type() == d_gate.scalar_type() && dy.scalar_type() == d_up.scalar_type() && dy.scalar_type() == y.scalar_type(),
                "gradients of one dtype");
  with_element(gate, [&]<class U>(U*) {
    with_element(dy, [&]<class D>(D*) {
      with_kind(kind, [&]<Activation k>() {
        over_ranges(gate, [&](int64_t i, int64_t n) {
          run<GatedBackward<k, U, D>>(pointer<U>(gate) + i, pointer<U>(up) + i, pointer<D>(dy) + i, pointer<D>(d_gate) + i,
                                      pointer<D>(d_up) + i, pointer<D>(y) + i, n);
        });
      });
    });
  });
}

void add(const at::Tensor& a, const at::Tensor& b, const at::Tensor& y) {
  check_flat(a, y);
  check_flat(b, y);
  BALLAST_CHECK(b.scalar_type() == y.scalar_type(), "the second addend has the dtype of the sum");
  with_element(a, [&]<class A>(A*) {
    with_element(y, [&]<class Y>(Y*) {
      over_ranges(y, [&](int64_t i, int64_t n) { run<AddTo<A, Y>>(pointer<A>(a) + i, pointer<Y>(b) + i, pointer<Y>(y) + i, n); });
    });
  });
}

void add_to(const at::Tensor& x, const at::Tensor& y) { add(x, y, y); }

}  // namespace ballast::kernel
