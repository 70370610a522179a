#!/usr/bin/env python3
"""Sequences of very different lengths, in turn on one machine: ways of training them with PyTorch, and layouts of Ballast on one process and on several.

    bench/peers/varlen_against.py --scripts FOLDER --python ENV/bin/python [--lengths FILE] [--methods packed-loop,padded] [--ranks 1,2,4]

FOLDER holds train_varlen.py, a script that trains GPT-2 124M on the next --group sequences of a list and prints one JSON line per method. Without --lengths the list is
log-normal (median 120, sigma 1, 8 to 1024 tokens, seeded). PyTorch runs on all threads in one process, with --preload; Ballast on --threads threads, shared out to its
ranks. Speeds are real tokens per second: medians over all steps of all turns, the spread is that of the turns.
"""
import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))


def peer(args, method, lengths):
    command = [args.python, os.path.join(args.scripts, "train_varlen.py"), "--size", args.size, "--mode", args.mode, "--methods", method, "--lengths", lengths,
               "--longest", str(args.longest), "--pack", str(args.micro_tokens), "--group", str(args.group), "--steps", str(args.steps), "--warmup", str(args.warmup), "--threads", str(args.threads)]
    environment = dict(os.environ)
    if args.preload:
        environment["LD_PRELOAD"] = args.preload
    run = subprocess.run(command, capture_output=True, text=True, env=environment)
    for line in run.stdout.splitlines():
        if line.startswith("{"):
            figures = json.loads(line)
            if "step_times" in figures:
                return [tokens / seconds for tokens, seconds in zip(figures["real_tokens"][args.warmup:], figures["step_times"])], figures
            return None, figures.get("error", "no figures")
    return None, run.stderr.strip()[-300:]


def peer_ranks(args, ranks, lengths):
    command = [args.python, os.path.join(HERE, "varlen_torch_ranks.py"), "--ranks", str(ranks), "--threads", str(max(1, args.threads // ranks)), "--size", args.size, "--lengths", lengths,
               "--longest", str(args.longest), "--group", str(args.group), "--pack", str(args.micro_tokens), "--steps", str(args.steps), "--warmup", str(args.warmup)]
    environment = {**os.environ, **({"LD_PRELOAD": args.preload} if args.preload else {})}
    run = subprocess.run(command, capture_output=True, text=True, env=environment)
    for line in run.stdout.splitlines():
        if line.startswith("{"):
            return json.loads(line)["rates"], None
    return None, run.stderr.strip()[-300:]


SHAPES = {"30m": (6, 384, 6), "124m": (12, 768, 12)}   # layers, width, heads


def model_file(args, folder):
    """GPT-2 of the size with as many positions as the longest sequence has; PyTorch's models are made so too."""
    layers, width, heads = SHAPES[args.size]
    path = os.path.join(folder, "model.json")
    with open(path, "w") as file:
        json.dump({"model_type": "gpt2", "vocab_size": 50257, "n_positions": args.longest, "n_embd": width, "n_layer": layers, "n_head": heads, "activation_function": "gelu_new",
                   "layer_norm_epsilon": 1e-5, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}, file)
    return path


def ours(args, ranks, lengths, model):
    command = [args.ballast, "bench", "sequences", "--json", f"model.config={model}", f"lengths={lengths}", f"data.sequence.max_tokens={args.longest}",
               f"batch.micro_tokens={args.micro_tokens}", f"group={args.group}", f"steps={args.steps}", f"warmup={args.warmup}", "turns=1", f"precision={'fp32' if args.mode == 'fp32' else 'bf16'}",
               f"threads={max(1, args.threads // ranks)}", f"ranks={ranks}", f"placement={args.placement if ranks > 1 else 'ddp'}", "layouts=" + args.layouts]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{run.stderr[-2000:]}")
    return json.loads(run.stdout[run.stdout.index("{"):])["layouts"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scripts", required=True)
    parser.add_argument("--python", required=True)
    parser.add_argument("--ballast", default=os.path.join(ROOT, "build", "ballast"))
    parser.add_argument("--size", default="124m", choices=list(SHAPES))
    parser.add_argument("--mode", default="fp32", choices=["fp32", "amp", "bf16"])
    parser.add_argument("--lengths", default="")
    parser.add_argument("--shuffle", type=int, default=-1, help="a seed: takes the lengths of --lengths in random order")
    parser.add_argument("--longest", type=int, default=1024, help="longer ones are cut")
    parser.add_argument("--micro-tokens", type=int, default=1024)
    parser.add_argument("--group", type=int, default=16)
    parser.add_argument("--methods", default="padded,sorted,packed-mask,packed-loop")
    parser.add_argument("--layouts", default="padded,packed,balanced")
    parser.add_argument("--ranks", default="1")
    parser.add_argument("--placement", default="ddp")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--warmup", type=int, default=1)
    parser.add_argument("--preload", default="", help="an allocator for PyTorch")
    parser.add_argument("--out", default="", help="appends one JSON line")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        lengths = args.lengths
        if not lengths:
            rng = random.Random(0)
            lengths = os.path.join(folder, "lengths.txt")
            with open(lengths, "w") as file:
                for _ in range(args.group * (args.steps + args.warmup)):
                    file.write(f"{max(8, min(1024, int(120 * rng.lognormvariate(0, 1))))}\n")
        elif args.shuffle >= 0:
            with open(lengths) as file:
                found = [min(args.longest, int(word)) for word in file.read().split()]
            random.Random(args.shuffle).shuffle(found)
            lengths = os.path.join(folder, "lengths.txt")
            with open(lengths, "w") as file:
                file.writelines(f"{length}\n" for length in found[:args.group * (args.steps + args.warmup)])
        model = model_file(args, folder)
        rows = {}

        def note(name, rates, more):
            row = rows.setdefault(name, {"rates": [], "turns": [], "more": more})
            row["rates"] += rates
            row["turns"].append(statistics.median(rates))
            print(f"  {name}: {row['turns'][-1]:.1f} real tokens/s", flush=True)

        for turn in range(args.turns):
            print(f"turn {turn + 1}: {args.size}, {args.mode}, {args.threads} threads, {args.group} sequences a step", flush=True)
            for method in [method for method in args.methods.split(",") if method]:
                rates, more = peer(args, method, lengths)
                if rates is None:
                    print(f"  pytorch {method}: failed: {more}", flush=True)
                    continue
                note(f"pytorch {method}", rates, {"loss": more["loss_last"], "padding": 1 - 1 / more["slots_per_real_token"], "peak_mib": more["peak_rss_mib"]})
            for ranks in map(int, args.ranks.split(",")):
                # train_varlen.py has 1024 positions: longer sequences are compared with the script that takes any length.
                if args.mode == "fp32" and (ranks > 1 or args.longest > 1024):
                    rates, failure = peer_ranks(args, ranks, lengths)
                    if rates is None:
                        print(f"  pytorch packed, {ranks} ranks: failed: {failure}", flush=True)
                    else:
                        note(f"pytorch packed, {ranks} ranks", rates, {"loss": float("nan"), "padding": 0.0})
                for one in ours(args, ranks, lengths, model):
                    note(f"ballast {one['layout']}, {ranks} rank(s)", [one["real_tokens_per_s"]],
                         {"loss": one["loss"], "padding": one["padding_share"], "imbalance": one["busy_imbalance"], "peak_mib": one["peak_allocated_bytes"] / 2**20})
        peers = [statistics.median(row["rates"]) for name, row in rows.items() if name.startswith("pytorch")]
        best = max(peers) if peers else float("nan")
        print(f"{'':<36} {'real tokens/s':>14} {'spread':>8} {'of best peer':>13} {'padding':>8} {'imbalance':>10} {'loss':>8}")
        for name, row in sorted(rows.items(), key=lambda item: statistics.median(item[1]["rates"])):
            rate = statistics.median(row["rates"])
            imbalance = row["more"].get("imbalance")
            print(f"{name:<36} {rate:>14.1f} {100 * (max(row['turns']) - min(row['turns'])) / rate:>7.0f}% {rate / best:>13.2f} {100 * row['more']['padding']:>7.1f}% "
                  f"{'' if imbalance is None else f'{imbalance:.3f}':>10} {row['more']['loss']:>8.4f}")
        if args.out:
            with open(args.out, "a") as out:
                out.write(json.dumps({"size": args.size, "mode": args.mode, "threads": args.threads, "rows": rows}) + "\n")


main()
