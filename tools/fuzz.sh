#!/usr/bin/env bash
# Builds the fuzz targets with Clang and runs each for a while; what crashes one is kept in build-fuzz/crashes.
#   tools/fuzz.sh SECONDS [TARGET ...]
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:?usage: tools/fuzz.sh SECONDS [TARGET ...]}
shift
tools/install.sh --fuzz
tools/build.sh fuzz "${@:-ballast_fuzzers}"
targets=("$@")
if ((${#targets[@]} == 0)); then
  for source in tests/fuzz/fuzz_*.cpp; do targets+=("$(basename "$source" .cpp)"); done
fi

one() {
  local target=$1 work=build-fuzz/corpus/$1 log=build-fuzz/$1.log
  mkdir -p "$work" build-fuzz/crashes
  local seeds=()
  [[ -d tests/fuzz/corpus/$target ]] && seeds=("tests/fuzz/corpus/$target")
  if "build-fuzz/tests/fuzz/$target" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=4096 -max_len=16384 -print_final_stats=1 \
    -artifact_prefix="build-fuzz/crashes/$target-" "$work" "${seeds[@]}" >"$log" 2>&1 </dev/null; then
    echo "$target: $(grep -o 'number_of_executed_units: .*' "$log" | grep -o '[0-9]*$') inputs"
  else
    tail -n 60 "$log"
    echo "$target: failed"
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
