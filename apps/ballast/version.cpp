// What this binary is made of.
#include <ATen/Version.h>
#include <fmt/format.h>
#include <torch/version.h>

#include "ballast/verbs.h"

namespace ballast::cli {

std::string version_text() {
  return fmt::format("ballast {}\nlibtorch {}\nCPU path {}", BALLAST_VERSION, TORCH_VERSION, at::get_cpu_capability());
}

}  // namespace ballast::cli
