#!/usr/bin/env bash
# Builds test programs with a preset's sanitizers and runs them; last line 'N passed, N failed'.
#   tools/sanitize.sh asan|tsan PROGRAM ...     programs as in tests/: base plan data ...
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:?usage: tools/sanitize.sh asan|tsan PROGRAM ...}
shift
(($# > 0)) || { echo "usage: tools/sanitize.sh asan|tsan PROGRAM ..." >&2; exit 2; }
tools/install.sh --sanitizers
tools/build.sh "$preset" "${@/#/test_}"
source tools/sanitizer_options.sh
# OpenMP's threads are not instrumented: what they do would look like races.
if [[ $preset == tsan ]]; then export OMP_NUM_THREADS=1; fi
python3 tools/run_tests.py "build-$preset" --timeout 1200 "$@"
