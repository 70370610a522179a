#!/usr/bin/env bash
# Builds the fuzz targets and runs each for a while from small valid seeds; the input that fails one is kept in
# build-asan/crashes.
#   tools/fuzz.sh SECONDS [TARGET ...]
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:?usage: tools/fuzz.sh SECONDS [TARGET ...]}
shift
tools/install.sh --sanitizers
tools/build.sh asan "${@:-ballast_fuzzers}"
targets=("$@")
if ((${#targets[@]} == 0)); then
  for source in tests/fuzz/fuzz_*.cpp; do targets+=("$(basename "$source" .cpp)"); done
fi
source tools/sanitizer_options.sh
rm -rf build-asan/seeds
python3 tests/fuzz/make_seeds.py build-asan/seeds
mkdir -p build-asan/crashes
# Some targets write a file for every input: into memory, where there is such a folder.
memory=/dev/shm
[[ -w $memory ]] || memory=/tmp
TMPDIR=$(mktemp -d "$memory/ballast-fuzz.XXXXXX")
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT

# What the target found in earlier runs is in its corpus and is tried again first.
one() {
  local target=$1 corpus=build-asan/corpus/$1 log=build-asan/$1.log status=0 units
  mkdir -p "$corpus"
  # No more than the inputs' own memory should be needed: 2 GiB stop an allocation of a size that a file names.
  "build-asan/tests/fuzz/$target" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 -max_len=16384 -print_final_stats=1 \
    -artifact_prefix="build-asan/crashes/$target-" "$corpus" "build-asan/seeds/$target" >"$log" 2>&1 </dev/null || status=$?
  units=$(grep -o 'number_of_executed_units: *[0-9]*' "$log" | grep -o '[0-9]*$' || echo 0)
  if ((status == 0 && units > 0)); then
    echo "$target: $units inputs, $(grep -o 'cov: [0-9]*' "$log" | tail -n 1), peak $(grep -o 'peak_rss_mb: *[0-9]*' "$log" | grep -o '[0-9]*$') MB"
  else
    tail -n 60 "$log"
    echo "$target: failed with status $status after $units inputs"
    return 1
  fi
}

passed=0 failed=0 pids=()
collect() { if wait "$1"; then passed=$((passed + 1)); else failed=$((failed + 1)); fi; }
for target in "${targets[@]}"; do
  one "$target" &
  pids+=($!)
  if ((${#pids[@]} >= $(nproc))); then
    collect "${pids[0]}"
    pids=("${pids[@]:1}")
  fi
done
for pid in "${pids[@]}"; do collect "$pid"; done
echo "$passed passed, $failed failed"
((failed == 0 && passed > 0))
