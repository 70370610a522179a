// ballast bench: figures of this machine as JSON, for comparison with other programs on it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "ballast/base/error.h"
#include "ballast/train/commands.h"
#include "ballast/train/link_report.h"
#include "ballast/train/machine.h"
#include "ballast/train/process.h"
#include "ballast/train/verb_bench.h"
#include "ballast/train/verb_bench_codecs.h"

namespace ballast {

namespace {

int bench_gemm(const BenchOptions& options) {
  const RunConfig config = parse_run_config("", "command line", [&] {
    std::vector<std::string> overrides;
    for (const std::string& one : options.overrides) overrides.push_back(one.starts_with("threads=") ? "train." + one : one);
    return overrides;
  }());
  return on_ranks(config, options.ranks, [&](const Topology&, Communicator& communicator, int threads) {
    const double fp32 = measured_gemm_peak(communicator, DType::Float32, threads), bf16 = measured_gemm_peak(communicator, DType::BFloat16, threads);
    if (communicator.rank() != 0) return 0;
    if (options.json) {
      std::cout << nlohmann::json{{"name", "gemm"}, {"fp32_flops", fp32}, {"bf16_flops", bf16}, {"threads", threads}, {"cpu_flags", cpu_flags()}}.dump(2) << "\n";
    } else {
      std::cout << fmt::format("fp32 {:.1f} GFLOP/s, bf16 {:.1f} GFLOP/s with {} threads\n", fp32 / 1e9, bf16 / 1e9, threads);
    }
    return 0;
  });
}

struct Bench {
  const char* name;
  int (*run)(const BenchOptions&);
};
constexpr Bench kBenches[] = {{"train", bench_train}, {"gemm", bench_gemm}, {"partition", bench_partition}, {"sequences", bench_sequences}, {"layout", bench_layout}, {"codecs", bench_codecs}, {"links", bench_links}};

}  // namespace

int run_bench(const BenchOptions& options) {
  if ((options.convergence || options.errors) && options.name != "partition") {
    throw Error(ErrorKind::Usage, "--convergence and --errors belong to the benchmark 'partition'").found(printable(options.name));
  }
  std::vector<std::string> names;
  for (const Bench& bench : kBenches) {
    if (options.name == bench.name) return bench.run(options);
    names.push_back(bench.name);
  }
  const std::string near = nearest(options.name, names);
  throw Error(ErrorKind::Usage, fmt::format("no benchmark '{}'", printable(options.name)))
      .expected(fmt::format("one of {}", fmt::join(names, ", ")))
      .cure(near.empty() ? "" : "did you mean '" + near + "'?");
}

}  // namespace ballast
