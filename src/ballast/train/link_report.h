#pragma once
// Measured links as a topology that a configuration accepts, as a table and as JSON; and the verbs that measure them.
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "ballast/comm/link_probe.h"
#include "ballast/train/commands.h"

namespace ballast {

// "topology:" with bandwidth and latency of every level that has links, the table before it as comments.
std::string link_yaml(const std::vector<LinkFigures>& figures, const std::string& transport);
std::string link_table(const std::vector<LinkFigures>& figures);
// One object: per level latency_s, bandwidth_bytes_per_s and by_size; null and none where a level has one unit.
nlohmann::json link_json(const std::vector<LinkFigures>& figures, const std::string& transport);

// bench links [topology=...] [--ranks N] [--json]
int bench_links(const BenchOptions& options);

struct LinkOptions {
  std::vector<std::string> overrides;  // "topology={node: 2, cluster: 2}"
  int64_t ranks = 0;                   // 0: what the launcher's environment or the topology says
  bool json = false;
};
// doctor --links: the YAML on standard output, the table on standard error.
int doctor_links(const LinkOptions& options);

}  // namespace ballast
