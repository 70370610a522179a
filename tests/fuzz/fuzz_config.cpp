// Any bytes as a configuration give a result or Error(Usage), and a result survives being written and read again.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "ballast/base/error.h"
#include "ballast/config/run_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ballast;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  // Bytes behind a 0xff, which no configuration holds, are overrides.
  const size_t cut = bytes.find('\xff');
  std::vector<std::string> overrides;
  if (cut != std::string_view::npos) overrides.emplace_back(bytes.substr(cut + 1));
  try {
    const RunConfig config = parse_run_config(bytes.substr(0, cut), "fuzz.yaml", overrides);
    const RunConfig again = parse_run_config(config.source.write(), "written.yaml");
    if (again.source.fingerprint() != config.source.fingerprint()) std::abort();
    placement_of(config, topology_of(config, 0));
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::Usage) std::abort();
  }
  return 0;
}
