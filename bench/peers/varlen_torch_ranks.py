#!/usr/bin/env python3
"""Packed data parallelism with PyTorch on sequences of very different lengths: every rank takes its share of a step's sequences in list order, packs them first fit decreasing,
calls SDPA once per segment, accumulates over its bins without communication and averages gradients over gloo once per step. Prints one JSON line.

    python varlen_torch_ranks.py --ranks 4 --threads 1 --lengths FILE
"""
import argparse
import json
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SHAPES = {"124m": (12, 768, 12), "30m": (6, 384, 6)}
VOCAB = 50257


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, cuts):
        tokens, width = x.shape
        q, k, v = (part.view(tokens, self.heads, -1).transpose(0, 1) for part in self.qkv(self.norm1(x)).chunk(3, -1))
        attended = [F.scaled_dot_product_attention(q[None, :, a:b], k[None, :, a:b], v[None, :, a:b], is_causal=True)[0] for a, b in zip(cuts, cuts[1:])]
        x = x + self.out(torch.cat(attended, 1).transpose(0, 1).reshape(tokens, width))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Model(nn.Module):
    def __init__(self, layers, width, heads, positions):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCAB, width), nn.Embedding(positions, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        for table in (self.tokens, self.positions):
            nn.init.normal_(table.weight, std=0.02)

    def forward(self, ids, places, cuts, targets):
        x = self.tokens(ids) + self.positions(places)
        for block in self.blocks:
            x = block(x, cuts)
        return F.cross_entropy(F.linear(self.norm(x), self.tokens.weight), targets, reduction="sum", ignore_index=-1)


def bins_of(sequences, room):
    bins = []
    for one in sorted(sequences, key=len, reverse=True):
        target = next((b for b in bins if sum(map(len, b)) + len(one) <= room), None)
        if target is None:
            bins.append(target := [])
        target.append(one)
    return bins


def worker(rank, a, results):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(a.port))
    dist.init_process_group("gloo", rank=rank, world_size=a.ranks)
    torch.set_num_threads(a.threads)
    torch.manual_seed(0)
    lengths = [min(a.longest, int(line)) for line in open(a.lengths).read().split()]
    model = Model(*SHAPES[a.size], a.longest)
    parallel = DistributedDataParallel(model, static_graph=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    generator = torch.Generator().manual_seed(1)
    rates = []
    for step in range(a.warmup + a.steps):
        group = [lengths[(step * a.group + i) % len(lengths)] for i in range(a.group)]
        sequences = [torch.randint(0, VOCAB, (n,), generator=generator) for n in group]
        bins = bins_of(sequences[rank::a.ranks], a.pack)
        trained = sum(n - 1 for n in group)
        dist.barrier()
        began = time.perf_counter()
        for index, part in enumerate(bins):
            cuts = [0]
            for one in part:
                cuts.append(cuts[-1] + len(one))
            ids, places = torch.cat(part), torch.cat([torch.arange(len(one)) for one in part])
            targets = torch.cat([torch.cat([one[1:], torch.tensor([-1])]) for one in part])
            if index + 1 < len(bins):
                with parallel.no_sync():
                    (parallel(ids, places, cuts, targets) * (a.ranks / trained)).backward()
            else:
                (parallel(ids, places, cuts, targets) * (a.ranks / trained)).backward()
        optimizer.step()
        optimizer.zero_grad()
        dist.barrier()
        if step >= a.warmup:
            rates.append(sum(group) / (time.perf_counter() - began))
    if rank == 0:
        results.put({"work": "packed data parallelism", "ranks": a.ranks, "threads": a.threads, "size": a.size, "real_tokens_per_s": statistics.median(rates), "rates": rates})
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--size", default="124m", choices=sorted(SHAPES))
    parser.add_argument("--lengths", required=True)
    parser.add_argument("--longest", type=int, default=1024)
    parser.add_argument("--group", type=int, default=16)
    parser.add_argument("--pack", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--warmup", type=int, default=1)
    parser.add_argument("--port", type=int, default=29617)
    a = parser.parse_args()
    if a.group % a.ranks:
        sys.exit("--group must be a multiple of --ranks")
    queue = mp.get_context("spawn").SimpleQueue()
    mp.spawn(worker, (a, queue), nprocs=a.ranks)
    print(json.dumps(queue.get()))


if __name__ == "__main__":
    main()
