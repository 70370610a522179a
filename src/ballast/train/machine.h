#pragma once
// What the machine can do, measured: the yardstick of MFU.
#include <functional>
#include <string>
#include <vector>

#include "ballast/comm/communicator.h"
#include "ballast/plan/dtype.h"

namespace ballast {

// Best rate of square matrix products in the compute dtype [FLOP/s] with this rank's threads, all ranks measuring at once; summed over ranks.
// About half a second.
double measured_gemm_peak(Communicator& communicator, DType compute, int threads);
// The yardstick of MFU. A peak that was measured beside other load is too low: where a step goes faster than the peak it is measured again, a few times at most.
class GemmPeak {
 public:
  // measure: by all ranks at once, the same answer on each.
  explicit GemmPeak(std::function<double()> measure) : measure_(std::move(measure)), rate_(measure_()) {}
  double rate() const { return rate_; }   // FLOP/s
  // Measures again where `rate` [FLOP/s], alike on all ranks, is above the peak; whether it did.
  bool doubt(double rate);

 private:
  std::function<double()> measure_;
  double rate_;
  int left_ = 3;
};
// Bytes of memory that this process may use: the machine's, or its cgroup's limit.
int64_t machine_memory();
// Bytes that one rank may use: the machine's memory divided by the ranks on this host .
int64_t memory_per_rank(Communicator& communicator);

// The vector and matrix extensions that this CPU has, of those that matter here: avx2, fma, avx512f, avx512_bf16, amx_bf16, ...
std::vector<std::string> cpu_flags();
// What ATen dispatches to and how bf16 products are made: "AVX2, bf16 products converted".
std::string cpu_path();

}  // namespace ballast
