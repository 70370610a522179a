#pragma once
// ballast bench codecs: how fast runs are encoded and decoded, beside what this machine copies.
#include "ballast/train/commands.h"

namespace ballast {

// Settings: block=N and elements=N. Throws Error(Usage) for others.
int bench_codecs(const BenchOptions& options);

}  // namespace ballast
