"""Training steps (forward, backward, fused AdamW) of a GPT-2 shape in PyTorch eager; random weights and tokens, no dropout.
Prints one JSON line with the keys of `ballast bench train --json`. bench/peers/train_against.py runs it beside Ballast.

    LD_PRELOAD=libtcmalloc_minimal.so.4 python bench/peers/train_torch.py --preset gpt2-124m --batch 1 --seq 512 --precision fp32 --threads 2
"""
import argparse
import json
import resource
import statistics
import time

import torch
import transformers

SHAPES = {  # layers, width, heads
    "gpt2-124m": (12, 768, 12),
    "gpt2-30m": (6, 384, 6),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", choices=SHAPES, default="gpt2-124m")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--seq", type=int, default=512)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32", help="bf16: fp32 weights under bf16 autocast")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    layers, width, heads = SHAPES[options.preset]
    config = transformers.GPT2Config(n_layer=layers, n_embd=width, n_head=heads, n_positions=max(1024, options.seq), resid_pdrop=0.0,
                                     embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False, attn_implementation="sdpa")
    model = transformers.GPT2LMHeadModel(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    ids = torch.randint(0, config.vocab_size, (options.batch, options.seq))
    times, losses = [], []
    for _ in range(options.warmup + options.steps):
        began = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=options.precision == "bf16"):
            loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        times.append(time.perf_counter() - began)
    times = times[options.warmup:]
    step = statistics.median(times)
    print(json.dumps({"name": "train", "tokens_per_s": options.batch * options.seq / step, "step_s": step, "step_times": times,
                      "loss_first": losses[0], "loss": losses[-1],
                      "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, "torch": torch.__version__}))


main()
