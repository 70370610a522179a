// ballast config schema: every key there is.
#include <cstdio>

#include "ballast/config/run_config.h"
#include "ballast/verbs.h"

namespace ballast::cli {

void add_config(CLI::App& app, Chosen& chosen) {
  CLI::App* config = app.add_subcommand("config", "The configuration itself");
  config->group("Before a run");
  config->require_subcommand(1);
  CLI::App* schema = config->add_subcommand("schema", "Print every key with its default, unit and meaning");
  struct Form {
    bool json = false, markdown = false;
  };
  auto form = std::make_shared<Form>();
  CLI::Option* json = schema->add_flag("--json", form->json, "As JSON")->group("Output");
  schema->add_flag("--markdown", form->markdown, "As the reference in docs/configuration.md")
      ->group("Output")
      ->excludes(json);
  schema->callback([&chosen, form] {
    chosen = [form] {
      const ConfigSchema& keys = run_schema();
      const std::string text = form->json ? keys.json() : form->markdown ? keys.markdown() : keys.text();
      std::fwrite(text.data(), 1, text.size(), stdout);
      return 0;
    };
  });
}

}  // namespace ballast::cli
