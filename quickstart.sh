#!/usr/bin/env bash
# From a bare Debian 12 to text: installs, builds, trains a small GPT on the bundled questions and answers with 2 ranks,
# writes a report and generates. Every call trains anew, in the next free folder runs/quickstart-N.
#   ./quickstart.sh [key=value ...]     for example train.steps=500 batch.tokens=8k
set -euo pipefail
cd "$(dirname "$0")"
for argument in "$@"; do
  [[ $argument == *=* && $argument != -* ]] || { echo "usage: ./quickstart.sh [key=value ...]" >&2; exit 2; }
done
tools/install.sh
tools/build.sh release ballast

mkdir -p runs
number=1
while ! mkdir "runs/quickstart-$number" 2>/dev/null; do number=$((number + 1)); done
run=runs/quickstart-$number
build/ballast train examples/quickstart.yaml --ranks 2 "run.dir=$run" "$@"
build/ballast report "$run"
prompt=$'Question: Tom has 3 boxes with 12 pencils each. He gives 6 pencils to Ann. How many pencils does Tom have left?\nAnswer:'
build/ballast generate "$run" --prompt "$prompt" --tokens 60 --temperature 0.7 --top-p 0.9 --seed 1
echo
echo "Run folder: $run (metrics.jsonl, report.html, checkpoints). Go on with: build/ballast --help"
