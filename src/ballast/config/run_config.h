#pragma once
// What a run is told: the configuration as plain values, read once from the strict table of keys (run_schema). Nothing
// below train/ reads the configuration.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "ballast/base/config.h"
#include "ballast/layout/policies.h"
#include "ballast/plan/optimizer_spec.h"
#include "ballast/plan/placement.h"
#include "ballast/plan/schedule_lr.h"
#include "ballast/plan/topology.h"

namespace ballast {

struct RunConfig {
  struct Run {
    std::string dir;  // empty: not given
    uint64_t seed = 0;
    bool tensorboard = true;
  } run;

  struct Model {
    std::string preset, path, config;  // at most one is not empty
    std::optional<int64_t> vocab_size;
    std::optional<double> dropout;  // sets all three of the model's
    bool given() const { return !preset.empty() || !path.empty() || !config.empty(); }
  } model;

  struct Source {
    std::string path;
    double weight = 1;  // share of the trained tokens, relative to the other sources
    bool operator==(const Source&) const = default;
  };
  enum class Overlong : uint8_t { Split, Cut, Drop, Error };
  struct Data {
    std::vector<Source> train;
    bool weighted = false;  // some source names a weight: the sources are streams of a mixture, else one stream
    std::vector<std::string> eval;
    std::string format;                                       // text, prompt-completion, chat
    std::vector<std::pair<std::string, std::string>> fields;  // those that were renamed: {prompt: question}
    std::string chat_template;                                // chatml, llama-3, mistral; empty: not given
    std::string tokenizer;                                    // empty: not given
    std::string cache;                                        // folder of token stores
    std::optional<int64_t> max_tokens;                        // of one sequence; not set: the model's positions
    std::string layout;
    SequenceOptions sequence;
    std::string curves;                                       // file of measured costs; empty: reckoned from rates
    double flops = 0;                                         // FLOP/s of a rank to reckon with
    Overlong overlong = Overlong::Split;
    int64_t workers = 0;  // threads that prepare data; 0: as many as the process may use
  } data;

  std::optional<Topology> topology;  // not set: one level `node` of all ranks
  YamlNode placement;                // a preset's text or a table; see placement_of

  struct Batch {
    int64_t tokens = 0;                   // real tokens of a step over all ranks
    std::optional<int64_t> micro_tokens;  // slots of a micro-batch on one rank; not set: the sequence limit
  } batch;

  enum class Recompute : uint8_t { None, Block };
  struct TraceRange {
    int64_t first = 0, last = 0;  // steps, inclusive; 0: none
    bool operator==(const TraceRange&) const = default;
  };
  struct Train {
    std::optional<int64_t> steps, tokens;  // at most one of steps, tokens, epochs is set
    std::optional<double> epochs;
    std::string precision;  // fp32, bf16
    Recompute recompute = Recompute::None;
    int64_t recompute_every = 1;      // of `recompute_every` blocks one is recomputed
    std::vector<std::string> freeze;  // globs over tensor names
    int64_t threads = 0;              // per rank; 0: share of the affinity mask
    int64_t prefetch = 0;             // segments whose weights are gathered ahead; 0: as memory allows
    TraceRange trace;
    int64_t eval_every = 0;               // steps; 0: never
    std::optional<int64_t> eval_batches;  // not set: all
    int64_t log_every = 10;               // steps
    bool skip_nonfinite = false;
    double timeout_s = 300;  // of every blocking call between ranks
  } train;

  struct Comm {
    std::string backend;  // auto, gloo, shm
  } comm;

  struct Optimizer {
    OptimizerSpec spec;
    std::vector<std::string> decay_exclude;  // globs, beside norms and biases
    double clip = 0;                         // global gradient norm; 0: off
    LrSchedule schedule;                     // steps is 1 until the run's length is known
  } optimizer;

  struct Checkpoint {
    int64_t every = 0;  // steps; 0: at the end only
    int64_t keep = 2;
    bool best = true;
  } checkpoint;

  Config source;  // what it was read from, with origins
};

const ConfigSchema& run_schema();

// Throws Error(Usage) at file, line and column.
RunConfig load_run_config(const std::filesystem::path& file, std::span<const std::string> overrides = {});
RunConfig parse_run_config(std::string_view text, const std::string& file_name,
                           std::span<const std::string> overrides = {});
RunConfig run_config_of(Config config);

// Whether everything is there that a verb needs: throws Error(Usage) naming the missing key with an example.
enum class Needs : uint8_t { Model = 1, TrainData = 2, EvalData = 4, RunFolder = 8, Length = 16 };
void require(const RunConfig& config, std::initializer_list<Needs> needs);

// The topology for so many ranks: the given one, which must have as many (0: any number), else one level `node`.
// Without either it is one rank. Throws Error(Usage).
Topology topology_of(const RunConfig& config, int64_t ranks);
// Errors carry the place in the configuration.
Placement placement_of(const RunConfig& config, const Topology& topology);

// "10:12" or "10": steps, first and last. Throws Error(Usage).
RunConfig::TraceRange parse_trace_range(const std::string& text);

// {pair: 2, node: 2} or {pair: {size: 2, bandwidth: 1Gbit, latency: 3ms}}, innermost first. Throws Error(Usage).
Topology parse_topology(const YamlNode& node);

}  // namespace ballast
