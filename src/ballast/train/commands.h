#pragma once
// The verbs of the command line as functions: plain options in, exit code out. The command line parses and forwards;
// results go to standard output, progress and messages to standard error, failures are Error.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ballast/config/run_config.h"

namespace ballast {

// CONFIG [key=value ...] [--ranks N]: what several verbs share.
struct ConfigSource {
  std::string path;                    // a configuration; for eval also a run folder or a model folder
  std::vector<std::string> overrides;  // "a.b=value"
  int64_t ranks = 0;                   // 0: what the launcher's environment or the topology says
};

struct DataPrepareOptions {
  ConfigSource config;
  bool force = false;  // prepare again though the store is there
};
int run_data_prepare(const DataPrepareOptions& options);

struct ValidateOptions {
  ConfigSource config;
  bool json = false;
};
int run_validate(const ValidateOptions& options);

struct PlanOptions {
  ConfigSource config;
  bool json = false;
  std::optional<int64_t> step;          // lay out the samples of this step instead of an assumed one
  std::optional<int64_t> limit_memory;  // bytes per rank: refuse what does not fit
  std::optional<int64_t> limit_ranks;
  std::vector<std::string> compare;  // placements to set beside the configured one
  std::optional<double> flops;       // FLOP/s of a rank, for --compare; else measured here
  bool show_layout = false;          // who holds what instead of memory and bytes
  std::string svg;                   // file for a picture of the layout; empty: none
};
int run_plan(const PlanOptions& options);

struct TrainOptions {
  ConfigSource config;
  bool resume = false;
  std::optional<RunConfig::TraceRange> trace;  // replaces train.trace
};
int run_train(const TrainOptions& options);

struct EvalOptions {
  ConfigSource config;
  bool json = false;
};
int run_eval(const EvalOptions& options);

struct TextOptions {
  std::string path;  // run folder or model folder
  std::string prompt;
  int64_t tokens = 100;      // at most; the end-of-text ends it earlier
  double temperature = 0.8;  // 0: greedy
  double top_p = 1;
  int64_t top_k = 0;  // 0: all
  uint64_t seed = 0;
  bool chat = false;  // the prompt is a user's message, put into the template of the run
  std::string precision = "fp32";
  int64_t threads = 0;
  bool json = false;
};
int run_generate(const TextOptions& options);

struct ExportOptions {
  std::string run, to;
  std::string checkpoint = "best";  // best (newest if none was evaluated), newest, or a step
  std::string precision = "fp32";   // fp32, bf16
};
int run_export(const ExportOptions& options);

struct InspectOptions {
  std::string path;  // run folder, checkpoint, model folder, tokenizer, safetensors file, token store or token file
  bool json = false;
  bool verify = false;  // read everything and compare the hashes
};
int run_inspect(const InspectOptions& options);

struct BenchOptions {
  std::string name;                    // train, gemm, partition, ...
  std::vector<std::string> overrides;  // "batch=4", "model.preset=gpt2-124m"
  int64_t ranks = 0;                   // like ranks=N
  bool convergence = false, errors = false;  // of the benchmark `partition`
  bool json = false;
};
int run_bench(const BenchOptions& options);

struct ReportOptions {
  std::string run;
  std::string output;  // empty: RUN/report.html
};
int run_report(const ReportOptions& options);

struct DoctorOptions {
  bool json = false;
};
int run_doctor(const DoctorOptions& options);

}  // namespace ballast
