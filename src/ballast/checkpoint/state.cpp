#include "ballast/checkpoint/state.h"

#include "ballast/base/error.h"
#include "ballast/base/json_fault.h"
#include "ballast/checkpoint/bounded_json.h"

namespace ballast {

namespace {
using Json = nlohmann::json;
constexpr const char* kFormat = "ballast-state";
}  // namespace

std::string state_text(const CheckpointState& state) {
  return Json{{"format", kFormat},
              {"step", state.step},
              {"ranks", state.ranks},
              {"seed", state.seed},
              {"config_fingerprint", state.config_fingerprint},
              {"layout_fingerprint", state.layout_fingerprint},
              {"topology", state.topology},
              {"cursor", state.cursor},
              {"schedule", state.schedule},
              {"metrics", state.metrics}}
             .dump(1, ' ', true, Json::error_handler_t::replace) +
         "\n";
}

CheckpointState parse_state(const std::string& text, const std::string& file) {
  const auto corrupt = [&](const std::string& found) {
    return Error(ErrorKind::CorruptFile, "the state file of a checkpoint is damaged").at(file).found(printable(found));
  };
  const Json json = parse_bounded_json(text);
  if (!json.is_object()) throw corrupt("no JSON object: " + text);
  try {
    if (json.at("format") != kFormat) throw corrupt("another format");
    for (const char* key : {"step", "ranks", "seed"})
      if (!json.at(key).is_number_integer()) throw corrupt(std::string("\"") + key + "\" is no integer");
    CheckpointState state;
    state.step = json.at("step").get<int64_t>();
    state.ranks = json.at("ranks").get<int64_t>();
    if (state.step < 0 || state.ranks < 1) throw corrupt("step " + json.at("step").dump() + ", ranks " + json.at("ranks").dump());
    state.seed = json.at("seed").get<uint64_t>();
    state.config_fingerprint = json.at("config_fingerprint").get<std::string>();
    state.layout_fingerprint = json.at("layout_fingerprint").get<std::string>();
    state.topology = json.at("topology").get<std::string>();
    state.cursor = json.at("cursor");
    state.schedule = json.at("schedule");
    state.metrics = json.at("metrics");
    return state;
  } catch (const Json::exception& error) {
    throw json_error(ErrorKind::CorruptFile, "the state file of a checkpoint is damaged", file, error);
  }
}

}  // namespace ballast
