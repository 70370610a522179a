#!/usr/bin/env python3
"""Partitioning over slow links beside other trainers, in turn on one machine: same model shape, tokens, ranks and rate.

    bench/peers/partition_against.py --scripts FOLDER --python ENV/bin/python --nodes 2 --ranks-per-node 2 --rate 200mbit --micro-batches 1

FOLDER holds fsdp2.py and deepspeed_zero.py: scripts that train the 30M shape in network namespaces of the same limits and print one JSON line. Needs root
(tools/netlab check). Every turn runs all peers and all placements once; figures are medians over the steps of all turns, the spread is that of the turns.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))

PEERS = {
    "ddp fp32": ["fsdp2.py", "--kind", "ddp"],
    "ddp-bf16 amp": ["fsdp2.py", "--kind", "ddp-bf16", "--mode", "amp"],
    "ddp-bf16 fp32": ["fsdp2.py", "--kind", "ddp-bf16"],
    "fsdp2 bf16": ["fsdp2.py", "--kind", "fsdp2", "--mode", "bf16"],
    "fsdp2 fp32": ["fsdp2.py", "--kind", "fsdp2"],
    "fsdp2-keep bf16": ["fsdp2.py", "--kind", "fsdp2-keep", "--mode", "bf16"],
    "hsdp2 bf16": ["fsdp2.py", "--kind", "hsdp2", "--mode", "bf16"],
    "hsdp2 fp32": ["fsdp2.py", "--kind", "hsdp2"],
    "fsdp1 bf16": ["fsdp2.py", "--kind", "fsdp1", "--mode", "bf16"],
    "hsdp1 bf16": ["fsdp2.py", "--kind", "hsdp1", "--mode", "bf16"],
    "zero-1 bf16": ["deepspeed_zero.py", "--stage", "1", "--mode", "bf16"],
    "zero-2 bf16": ["deepspeed_zero.py", "--stage", "2", "--mode", "bf16"],
    "zero-3 bf16": ["deepspeed_zero.py", "--stage", "3", "--mode", "bf16"],
    "zero-3 hpz bf16": ["deepspeed_zero.py", "--stage", "3", "--mode", "bf16", "--hpz", "RANKS_PER_NODE"],
    "fsdp2-keep fp32": ["fsdp2.py", "--kind", "fsdp2-keep"],
    "fsdp1 fp32": ["fsdp2.py", "--kind", "fsdp1"],
    "hsdp1 fp32": ["fsdp2.py", "--kind", "hsdp1"],
    "zero-1 fp32": ["deepspeed_zero.py", "--stage", "1"],
    "zero-2 fp32": ["deepspeed_zero.py", "--stage", "2"],
    "zero-3 hpz fp32": ["deepspeed_zero.py", "--stage", "3", "--hpz", "RANKS_PER_NODE"],
    "zero-3 fp32": ["deepspeed_zero.py", "--stage", "3"],
}


def peer(args, name):
    script, *rest = PEERS[name]
    rest = [str(args.ranks_per_node) if word == "RANKS_PER_NODE" else word for word in rest]
    ranks = args.nodes * args.ranks_per_node
    command = [args.python, os.path.join(args.scripts, script), *rest, "--ranks", str(ranks), "--nodes", str(args.nodes), "--rate", args.rate, "--threads", "1",
               "--batch", str(args.micro_batches), "--seq", "256", "--steps", str(args.steps), "--warmup", str(args.warmup)]
    environment = dict(os.environ)
    if args.preload:
        environment["LD_PRELOAD"] = args.preload
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    for line in reversed(result.stdout.splitlines()):
        if line.startswith("{"):
            figures = json.loads(line)
            if "step_times" in figures:
                return figures["step_times"], figures.get("mib_between_nodes_per_step_per_node", 0)
            return None, figures.get("error", "no figures")
    return None, (result.stderr or result.stdout).strip().splitlines()[-1:]


def ours(args, placements, precision):
    rate = ["--rate", args.rate] if args.nodes > 1 else []
    command = [os.path.join(ROOT, "tools", "netlab"), "run", "--nodes", str(args.nodes), "--ranks-per-node", str(args.ranks_per_node), *rate, "--quiet", "--",
               args.ballast, "bench", "partition", "--json", "model.preset=gpt2-30m", f"batch={args.batch}", "seq=256", f"micro_batches={args.micro_batches // args.batch}",
               f"steps={args.steps}", f"warmup={args.warmup}", "turns=1", "threads=1", f"precision={precision}", "placements=" + ",".join(placements),
               f"topology={{node: {args.ranks_per_node}, cluster: {args.nodes}}}"]
    result = subprocess.run(command, capture_output=True, text=True)
    start = result.stdout.find("{")
    if result.returncode != 0 or start < 0:
        sys.exit(f"{' '.join(command)}\n{result.stderr}")
    return json.loads(result.stdout[start:result.stdout.rindex("}") + 1])["placements"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scripts", required=True)
    parser.add_argument("--python", required=True)
    parser.add_argument("--ballast", default=os.path.join(ROOT, "build", "ballast"))
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--ranks-per-node", type=int, default=2)
    parser.add_argument("--rate", default="200mbit", help="between nodes; one node has no limit")
    parser.add_argument("--micro-batches", type=int, default=1, help="of 256 tokens per rank and step; the peers take them as one batch")
    parser.add_argument("--batch", type=int, default=1, help="sequences of one of our micro-batches")
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--warmup", type=int, default=1)
    parser.add_argument("--preload", default="", help="an allocator for the peers")
    parser.add_argument("--peers", default=",".join(PEERS), help="names, separated by commas")
    parser.add_argument("--placements", default="zero3,hpz(node),zeropp(node),hsdp(node),topo(node,node),topo(node,node,reduce_on=int4,refresh=int8)")
    parser.add_argument("--precisions", default="bf16")
    parser.add_argument("--out", default="", help="appends one JSON line")
    args = parser.parse_args()
    peers = [name.strip() for name in args.peers.split(",") if name.strip()]
    unknown = [name for name in peers if name not in PEERS]
    if unknown:
        parser.error(f"--peers: no such peer: {', '.join(unknown)}; there are {', '.join(PEERS)}")
    if args.micro_batches % args.batch:
        parser.error(f"--batch {args.batch} does not divide --micro-batches {args.micro_batches}")
    placements, depth, word = [], 0, ""
    for char in args.placements + ",":
        depth += (char == "(") - (char == ")")
        if char == "," and depth == 0:
            placements.append(word)
            word = ""
        else:
            word += char
    rows = {}

    def note(name, times, mib):
        row = rows.setdefault(name, {"times": [], "turns": [], "mib": mib})
        if times is None:
            row["error"] = mib
            print(f"  {name}: failed: {mib}", flush=True)
            return
        row["times"] += times
        row["turns"].append(statistics.median(times))
        print(f"  {name}: {row['turns'][-1]:.2f} s per step", flush=True)

    for turn in range(args.turns):
        print(f"turn {turn + 1}: {args.nodes} nodes x {args.ranks_per_node} ranks, {args.rate if args.nodes > 1 else 'no limit'}, {args.micro_batches} x 256 tokens per rank", flush=True)
        for name in peers:
            note(name, *peer(args, name))
        for precision in args.precisions.split(","):
            for one in ours(args, placements, precision):
                note(f"ballast {one['placement']} {precision}", one["turn_medians_s"], one["bytes"]["cluster"] / args.nodes / 2**20)
    table = sorted(((statistics.median(row["turns"]), name) for name, row in rows.items() if row["turns"]))
    best = min((seconds for seconds, name in table if not name.startswith("ballast")), default=float("nan"))
    print(f"{'':<52} {'s/step':>8} {'spread':>8} {'MiB/node':>9} {'of best peer':>13}")
    for seconds, name in table:
        row = rows[name]
        spread = (max(row["turns"]) - min(row["turns"])) / seconds
        print(f"{name:<52} {seconds:>8.2f} {100 * spread:>7.0f}% {row['mib']:>9.1f} {seconds / best:>13.2f}")
    if args.out:
        with open(args.out, "a") as out:
            out.write(json.dumps({"nodes": args.nodes, "ranks_per_node": args.ranks_per_node, "rate": args.rate, "micro_batches": args.micro_batches, "rows": rows}) + "\n")


main()
