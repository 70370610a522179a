// ballast doctor: what this machine is, as Ballast sees it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "ballast/base/units.h"
#include "ballast/comm/bootstrap.h"
#include "ballast/kernel/allocator.h"
#include "ballast/train/commands.h"
#include "ballast/train/machine.h"

namespace ballast {

int run_doctor(const DoctorOptions& options) {
  install_allocator();
  const Membership membership = detect_membership(process_environment());
  const int threads = threads_per_rank(membership);
  const auto single = make_single();
  std::string model;
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    if (line.starts_with("model name")) {
      model = line.substr(line.find(':') + 2);
      break;
    }
  }
  const double fp32 = measured_gemm_peak(*single, DType::Float32, threads), bf16 = measured_gemm_peak(*single, DType::BFloat16, threads);
  if (options.json) {
    std::cout << nlohmann::json{{"cpu", model}, {"cpu_flags", cpu_flags()}, {"cpu_path", cpu_path()}, {"threads", threads}, {"memory_bytes", machine_memory()},
                                {"gemm_peak_flops", {{"fp32", fp32}, {"bf16", bf16}}}, {"launcher", membership.source}, {"ranks", membership.ranks}}
                     .dump(2)
              << "\n";
    return 0;
  }
  std::cout << fmt::format("cpu       {}\nflags     {}\npath      {}\nthreads   {} (affinity mask)\nmemory    {}\n", model, fmt::join(cpu_flags(), " "), cpu_path(), threads,
                           format_bytes(machine_memory()));
  std::cout << fmt::format("GEMM      fp32 {:.1f} GFLOP/s, bf16 {:.1f} GFLOP/s\nlauncher  {}, {} rank{}\n", fp32 / 1e9, bf16 / 1e9, membership.source, membership.ranks,
                           membership.ranks == 1 ? "" : "s");
  return 0;
}

}  // namespace ballast
