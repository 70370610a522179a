// ballast plan: memory, bytes and layout of a step, without running it.
#include "ballast/base/units.h"
#include "ballast/plan/placement.h"
#include "ballast/verbs.h"

namespace ballast::cli {

namespace {

// "memory=8GiB" or "ranks=16".
void read_limit(const std::string& text, PlanOptions& options) {
  const size_t equals = text.find('=');
  const std::string name = text.substr(0, equals);
  if (equals == std::string::npos || (name != "memory" && name != "ranks")) {
    throw Error(ErrorKind::Usage, "unknown limit")
        .at("--limit")
        .found("'" + printable(text) + "'")
        .expected("memory=8GiB or ranks=16");
  }
  try {
    const int64_t value = name == "memory" ? parse_bytes(text.substr(equals + 1)) : parse_count(text.substr(equals + 1));
    if (value < 1) throw Error(ErrorKind::Usage, "a limit must be above 0").found(printable(text)).expected("memory=8GiB or ranks=16");
    (name == "memory" ? options.limit_memory : options.limit_ranks) = value;
  } catch (const Error& error) {
    Error copy = error;
    throw std::move(copy).at("--limit " + name);
  }
}

int64_t read_flops(const std::string& text) {
  const int64_t rate = parse_count(text);
  if (rate < 1) throw Error(ErrorKind::Usage, "a rate must be above 0").at("--flops").found(printable(text)).expected("FLOP/s as in 100T or 5e13");
  return rate;
}

}  // namespace

void add_plan(CLI::App& app, Chosen& chosen) {
  auto [verb, options] = add_verb<PlanOptions>(
      app, chosen, "plan", "Memory per rank, bytes per level and the layout of a step, without running it",
      "Before a run", run_plan);
  add_config_source(*verb, options->config);
  verb->add_option("--step", options->step, "Lay out the samples of this step; without it an even step is assumed")
      ->option_text("N");
  auto limits = std::make_shared<std::vector<std::string>>();
  verb->add_option("--limit", *limits, "Refuse what needs more: memory=8GiB per rank, ranks=16")
      ->expected(1)
      ->take_all()
      ->option_text("NAME=VALUE");
  auto compare = std::make_shared<std::string>();
  verb->add_option("--compare", *compare, "Placements to set beside the configured one, as in 'zeropp(node),topo(pair,node)'")
      ->option_text("LIST");
  auto flops = std::make_shared<std::string>();
  verb->add_option("--flops", *flops, "FLOP/s of one rank for --compare, as in 100T or 5e13; without it this machine's is measured")
      ->option_text("RATE");
  auto show = std::make_shared<std::string>();
  verb->add_option("--show", *show, "layout: which ranks hold and attend which tokens, what is shared and moved, predicted times")
      ->check(CLI::IsMember({"layout"}))
      ->option_text("WHAT");
  verb->add_option("--svg", options->svg, "Write a picture of the layout into this file")->option_text("FILE");
  add_json(*verb, options->json);
  verb->callback([&chosen, options = options, limits, compare, flops, show] {
    chosen = [options, limits, compare, flops, show] {
      options->show_layout = !show->empty();
      if (!flops->empty()) options->flops = static_cast<double>(read_flops(*flops));
      for (const std::string& limit : *limits) read_limit(limit, *options);
      options->compare = split_placements(*compare);
      return run_plan(*options);
    };
  });
}

}  // namespace ballast::cli
