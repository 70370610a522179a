// ballast bench links and ballast doctor --links: the links of a topology, measured between its ranks.
#include <fmt/format.h>

#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>

#include "ballast/base/log.h"
#include "ballast/config/run_config.h"
#include "ballast/train/link_report.h"
#include "ballast/train/process.h"

namespace ballast {

namespace {

using Show = std::function<void(const std::vector<LinkFigures>& figures, const std::string& transport)>;

// `show` runs on rank 0.
int measure(const std::vector<std::string>& overrides, int64_t ranks, const Show& show) {
  const RunConfig config = parse_run_config("", "command line", overrides);
  return on_ranks(config, ranks, [&](const Topology& topology, Communicator& communicator, int) {
    const std::vector<LinkFigures> figures = probe_links(communicator, topology, {}, [&](const std::string& level) {
      if (communicator.rank() == 0) log_info("measuring the links of level {}", level);
    });
    if (communicator.rank() == 0) show(figures, communicator.name());
    return 0;
  });
}

}  // namespace

int bench_links(const BenchOptions& options) {
  return measure(options.overrides, options.ranks, [&](const std::vector<LinkFigures>& figures, const std::string& transport) {
    std::cout << (options.json ? link_json(figures, transport).dump(2) + "\n" : link_table(figures)) << std::flush;
  });
}

int doctor_links(const LinkOptions& options) {
  return measure(options.overrides, options.ranks, [&](const std::vector<LinkFigures>& figures, const std::string& transport) {
    std::cout << (options.json ? link_json(figures, transport).dump(2) + "\n" : link_yaml(figures, transport)) << std::flush;
    if (!options.json) std::cerr << link_table(figures) << std::flush;
  });
}

}  // namespace ballast
