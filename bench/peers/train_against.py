"""Ballast and PyTorch eager in turn on the same training steps: medians, ratios, peak memory. One command repeats the table of
docs/benchmarks.md:

    python bench/peers/train_against.py --python ENV/bin/python

ENV holds torch 2.11 and transformers. The peer runs with tcmalloc (package libtcmalloc-minimal4), which keeps its pages; without it
nothing is measured. `load` is the number of other processes that wanted a core when a turn began: above about 0.3, speeds are not to
be quoted.
"""
import argparse
import ctypes.util
import json
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
CASES = [(1, 512, "fp32"), (4, 64, "fp32"), (1, 512, "bf16"), (4, 64, "bf16")]


def last_json(command, environment=None):
    run = subprocess.run(command, capture_output=True, text=True, env=environment)
    if run.returncode != 0:
        sys.exit(f"{' '.join(command)}\nfailed with {run.returncode}:\n{run.stderr[-2000:]}")
    return json.loads(run.stdout[run.stdout.index("{"):])


def cpu_flags():
    with open("/proc/cpuinfo") as file:
        flags = next((line.split() for line in file if line.startswith("flags")), [])
    return [flag for flag in ("avx2", "fma", "avx512f", "avx512_bf16", "amx_bf16") if flag in flags]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ballast", default=os.path.join(HERE, "../../build/ballast"))
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--preset", default="gpt2-124m")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--cases", nargs="*", help="BATCHxSEQ:PRECISION, for example 1x512:fp32")
    options = parser.parse_args()
    tcmalloc = ctypes.util.find_library("tcmalloc_minimal") or sys.exit("libtcmalloc_minimal is missing: apt install libtcmalloc-minimal4")
    cases = [(*map(int, case.split(":")[0].split("x")), case.split(":")[1]) for case in options.cases] if options.cases else CASES
    print(f"{options.preset}, {options.threads} threads, {options.turns} turns of {options.steps} steps; CPU: {' '.join(cpu_flags())}")
    print("| tokens | precision | Ballast tokens/s | PyTorch tokens/s | ratio | peak GiB | load |")
    print("|---|---|---|---|---|---|---|")
    for batch, seq, precision in cases:
        turns = {"ours": [], "peer": []}
        loads = []
        for _ in range(options.turns):
            loads.append(os.getloadavg()[0])
            turns["ours"].append(last_json([options.ballast, "bench", "train", "--json", f"model.preset={options.preset}", f"batch={batch}", f"seq={seq}",
                                            f"precision={precision}", f"threads={options.threads}", f"steps={options.steps}", "warmup=1"]))
            turns["peer"].append(last_json([options.python, os.path.join(HERE, "train_torch.py"), "--preset", options.preset, "--batch", str(batch), "--seq", str(seq),
                                            "--precision", precision, "--threads", str(options.threads), "--steps", str(options.steps)],
                                           {**os.environ, "LD_PRELOAD": tcmalloc}))

        def of(who, key):
            return statistics.median(run[key] for run in turns[who])

        ours, peer = of("ours", "tokens_per_s"), of("peer", "tokens_per_s")
        memory = [of(who, "peak_rss_bytes") / 2**30 for who in ("ours", "peer")]
        print(f"| {batch} x {seq} | {precision} | {ours:.1f} | {peer:.1f} | {ours / peer:.2f} "
              f"| {memory[0]:.2f}, {memory[1]:.2f} | {statistics.median(loads):.1f} |", flush=True)


main()
