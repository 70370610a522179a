#include "ballast/train/machine.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <c10/core/InferenceMode.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <sstream>

#include "ballast/kernel/gemm.h"

namespace ballast {

double measured_gemm_peak(Communicator& communicator, DType compute, int threads) {
  const c10::InferenceMode inference;
  at::set_num_threads(threads);
  constexpr int64_t kSize = 768;
  const auto dtype = compute == DType::BFloat16 ? at::kBFloat16 : at::kFloat;
  const at::Tensor a = at::ones({kSize, kSize}, dtype), b = at::ones({kSize, kSize}, dtype), c = at::empty({kSize, kSize}, dtype);
  communicator.barrier("GEMM peak");
  double best = 0;
  const auto began = std::chrono::steady_clock::now();
  const auto seconds_since = [](auto start) { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  do {
    const auto start = std::chrono::steady_clock::now();
    kernel::product(a, b, c);
    best = std::max(best, 2.0 * kSize * kSize * kSize / seconds_since(start));
  } while (seconds_since(began) < 0.4);
  std::vector<double> all(static_cast<size_t>(communicator.size()));
  communicator.all_gather_fixed(&best, sizeof best, all.data(), "GEMM peak");
  double sum = 0;
  for (double rate : all) sum += rate;
  return sum;
}

bool GemmPeak::doubt(double rate) {
  if (rate <= rate_ || left_ == 0) return false;
  --left_;
  rate_ = std::max(rate_, measure_());
  return true;
}

int64_t machine_memory() {
  int64_t bytes = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  std::ifstream cgroup("/sys/fs/cgroup/memory.max");
  int64_t limit = 0;
  if (cgroup >> limit) bytes = std::min(bytes, limit);
  return bytes;
}

int64_t memory_per_rank(Communicator& communicator) {
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  int64_t here = 0;
  for (const std::string& name : communicator.all_gather_text(host, "host names")) here += name == host;
  return machine_memory() / std::max<int64_t>(1, here);
}

std::vector<std::string> cpu_flags() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line) && !line.starts_with("flags")) {
  }
  std::istringstream words(line);
  std::vector<std::string> flags;
  std::string word;
  while (words >> word) {
    if (word.starts_with("avx") || word.starts_with("amx") || word == "fma" || word == "f16c") flags.push_back(word);
  }
  return flags;
}

std::string cpu_path() {
  return at::get_cpu_capability() + ", fp32 products " + (kernel::fp32_products() == kernel::Fp32Products::Packed ? "in panels" : "by the BLAS") +
         ", bf16 products " + (kernel::bf16_products() == kernel::Bf16Products::Native ? "native" : "in panels, widened to fp32");
}

}  // namespace ballast
