// Any bytes as the text files of a checkpoint, as an item's name and as a line of metrics: a result or a typed error, and what
// is accepted as a manifest is written back byte for byte.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "ballast/base/error.h"
#include "ballast/checkpoint/load.h"
#include "ballast/checkpoint/manifest.h"
#include "ballast/checkpoint/state.h"
#include "ballast/train/metrics.h"

namespace {

template <class Parse>
void try_parse(Parse&& parse) {
  try {
    parse();
  } catch (const ballast::Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try_parse([&] {
    if (ballast::manifest_text(ballast::parse_manifest(text, "fuzz")) != text) std::abort();
  });
  try_parse([&] {
    const ballast::CheckpointState state = ballast::parse_state(text, "fuzz");
    if (ballast::parse_state(ballast::state_text(state), "fuzz") != state) std::abort();
  });
  try_parse([&] {
    const ballast::StateItem item = ballast::parse_item_name(text, "fuzz");
    ballast::parse_item_name(ballast::item_name(item), "fuzz");
  });
  try_parse([&] { ballast::parse_metrics_line(text, "fuzz", 1); });
  return 0;
}
