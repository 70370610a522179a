#!/usr/bin/env bash
# Configures a preset and builds targets of it; a compile job has at least 2 GB of memory.
#   tools/build.sh PRESET [TARGET ...]
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:?usage: tools/build.sh PRESET [TARGET ...]}
shift
memory_kib=$(awk '/^MemAvailable/ {print $2}' /proc/meminfo)
jobs=$(nproc)
most=$((memory_kib / 2097152))
((most >= 1)) || most=1
((jobs <= most)) || jobs=$most
log=$(mktemp)
trap 'rm -f "$log"' EXIT
cmake --preset "$preset" >"$log" 2>&1 || { cat "$log" >&2; exit 1; }
cmake --build --preset "$preset" -j "$jobs" ${1:+--target "$@"}
