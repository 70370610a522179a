#!/bin/sh
# Draws the layout pictures of docs/sequences.md anew and says what each step is predicted to take: tools/draw_layouts.sh [build/ballast]
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
ballast=${1:-$root/build/ballast}
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
# One text for each length; " a" is one token.
for length in 3009 2690 823 757 693 688 651 599 562 538 480 456 270 221 213 213 191 188 173 172 167 167 164 159 156 153 150 141 136 132 128 125 123 119 110 108 \
              108 95 81 80 79 64; do
  printf '{"text": "%s"}\n' "$(printf "%${length}s" | sed 's/ / a/g')"
done > "$place/texts.jsonl"
cat > "$place/plan.yaml" <<EOF
data: {train: [$place/texts.jsonl], tokenizer: $root/examples/tokenizers/gpt2, cache: $place/cache, sequence: {max_tokens: 4096, flops: 1T}}
model: {preset: llama-60m}
batch: {tokens: 16332, micro_tokens: 4096}
topology: {gpu: {size: 2, bandwidth: 20GB/s}, node: {size: 2, bandwidth: 2GB/s}}
EOF
for layout in padded packed balanced context-parallel bload; do
  "$ballast" plan "$place/plan.yaml" data.sequence.layout=$layout --step 1 --show layout --svg "$root/docs/images/layout-$layout.svg" | grep -E '^(layout|predicted)'
done
