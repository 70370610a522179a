#!/usr/bin/env python3
"""Writes updates.txt: weights and states after five steps of torch.optim.AdamW and SGD and of the Lion formula.
Elements 0-19 decay, 20-29 do not. Needs torch. Run: python make_updates.py > updates.txt"""
import torch

N, DECAYED, STEPS, SCALE = 30, 20, 5, 0.75
torch.manual_seed(3)
torch.set_num_threads(1)
start = torch.rand(N) * 0.95 + 0.05
start *= torch.where(torch.arange(N) % 3 == 0, -1.0, 1.0)
gradients = [torch.randn(N) * 10.0 ** torch.randint(-6, 2, (N,)) for _ in range(STEPS)]
lrs = [1e-3, 2e-3, 3e-3, 2.5e-3, 1e-3]


def row(name, values):
    print(name, *[float(x).hex() for x in values])


def torch_case(name, make, decay, keys):
    parts = [start[:DECAYED].clone(), start[DECAYED:].clone()]
    groups = [{"params": [parts[0]], "weight_decay": decay}, {"params": [parts[1]], "weight_decay": 0.0}]
    optimizer = make(groups)
    for gradient, lr in zip(gradients, lrs):
        for group in optimizer.param_groups:
            group["lr"] = lr
        parts[0].grad, parts[1].grad = (gradient * SCALE)[:DECAYED], (gradient * SCALE)[DECAYED:]
        optimizer.step()
    row(name + ".weights", torch.cat(parts))
    for key in keys:
        row(name + "." + key, torch.cat([optimizer.state[p][key] for p in parts]))


def lion(beta1=0.9, beta2=0.99, decay=0.3):
    weights, m = start.double(), torch.zeros(N).double()
    shrink = torch.where(torch.arange(N) < DECAYED, decay, 0.0).double()
    for gradient, lr in zip(gradients, lrs):
        g = gradient.double() * SCALE
        weights = weights * (1 - lr * shrink) - lr * torch.sign(beta1 * m + (1 - beta1) * g)
        m = beta2 * m + (1 - beta2) * g
    row("lion.weights", weights)
    row("lion.exp_avg", m)


row("start", start)
for i, gradient in enumerate(gradients):
    row(f"gradient{i}", gradient)
row("lr", lrs)
torch_case("adamw", lambda g: torch.optim.AdamW(g, betas=(0.9, 0.95), eps=1e-8, foreach=False), 0.1, ["exp_avg", "exp_avg_sq"])
torch_case("adamw-eps", lambda g: torch.optim.AdamW(g, betas=(0.8, 0.999), eps=1e-4, foreach=False), 0.0, ["exp_avg", "exp_avg_sq"])
torch_case("sgd", lambda g: torch.optim.SGD(g, lr=1.0, momentum=0.9, foreach=False), 0.05, ["momentum_buffer"])
torch_case("sgd-plain", lambda g: torch.optim.SGD(g, lr=1.0, foreach=False), 0.05, [])
lion()
