#!/usr/bin/env python3
"""Trains small models with build/ballast and with PyTorch from the same weights on the same text, and compares step by step.

    PYTHON tools/compare_with_torch.py [--steps 10] [--lr 2e-3] [-- key=value ...]

Needs torch, transformers and tokenizers. Every step trains the whole text, so both see the same tokens. Prints loss and gradient
norm of both (PyTorch's norm is recomputed in double: clip_grad_norm_ sums in fp32). Exit status 1 if a loss differs by more
than 1e-4 of itself, or the first norm by more than 1e-5.
"""
import argparse
import gzip
import json
import pathlib
import subprocess
import sys
import tempfile

import torch
from tokenizers import ByteLevelBPETokenizer
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOKENIZER = ROOT / "examples/tokenizers/gpt2"
END_OF_TEXT = 50256
RECORDS = 12


def models():
    torch.manual_seed(0)
    yield "gpt2", GPT2LMHeadModel(GPT2Config(n_embd=160, n_layer=6, n_head=5, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))
    yield "llama", LlamaForCausalLM(LlamaConfig(vocab_size=50257, hidden_size=64, intermediate_size=160, num_hidden_layers=3,
                                                num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=512))


def train_torch(model, sequences, lr):
    """Yields (loss, norm) of endless steps over all sequences: AdamW as examples/ configure it, no decay on norms and biases."""
    total = sum(len(answer) for _, answer in sequences)
    matrices = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW([dict(params=matrices, weight_decay=0.1), dict(params=others, weight_decay=0.0)], lr=lr, betas=(0.9, 0.95), eps=1e-8)
    model.train()
    while True:
        loss = 0.0
        for question, answer in sequences:
            ids = torch.tensor([question + answer])
            targets = torch.tensor([-100] * len(question) + answer)[1:]
            part = torch.nn.functional.cross_entropy(model(ids).logits[0, :-1], targets, reduction="sum", ignore_index=-100) / total
            part.backward()
            loss += part.item()
        norm = sum((p.grad.double() ** 2).sum() for p in model.parameters()).sqrt().item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        yield loss, norm


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("overrides", nargs="*", help="for ballast, for example train.precision=bf16 placement=zero3")
    options = parser.parse_args()
    tokenizer = ByteLevelBPETokenizer(str(TOKENIZER / "vocab.json"), str(TOKENIZER / "merges.txt"))
    with gzip.open(ROOT / "examples/data/gsm8k-train.jsonl.gz", "rt") as file:
        records = [json.loads(line) for _, line in zip(range(RECORDS), file)]
    sequences = [(tokenizer.encode(r["prompt"]).ids, tokenizer.encode(r["completion"]).ids + [END_OF_TEXT]) for r in records]
    inputs = sum(len(question) + len(answer) - 1 for question, answer in sequences)
    wrong = 0
    for name, model in models():
        with tempfile.TemporaryDirectory() as folder:
            place = pathlib.Path(folder)
            model.save_pretrained(place / "model")
            (place / "data.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
            (place / "config.yaml").write_text("""data: {format: prompt-completion, sequence: {max_tokens: 512}}
optimizer: {name: adamw, betas: [0.9, 0.95], eps: 1e-8, weight_decay: 0.1, clip: 1.0, schedule: {kind: constant}}
""")
            subprocess.run([ROOT / "build/ballast", "--log-level", "warning", "train", place / "config.yaml", f"run.dir={place}/run", f"model.path={place}/model",
                            f"data.train=[{place}/data.jsonl]", f"data.tokenizer={TOKENIZER}", f"optimizer.lr={options.lr}", f"batch.tokens={inputs}",
                            f"train.steps={options.steps}", *options.overrides], check=True, stderr=subprocess.DEVNULL)
            steps = [json.loads(line) for line in (place / "run/metrics.jsonl").read_text().splitlines()]
        for ours, (loss, norm) in zip(steps, train_torch(model, sequences, options.lr)):
            bad = abs(ours["loss"] - loss) > 1e-4 * loss or (ours["step"] == 1 and abs(ours["grad_norm"] - norm) > 1e-5 * norm)
            wrong += bad
            print(f"{name} step {ours['step']:3}  loss {ours['loss']:.6f} torch {loss:.6f}  norm {ours['grad_norm']:.5f} torch {norm:.5f}{'  <-- differs' if bad else ''}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
