"""Encoding speed of Hugging Face `tokenizers` on the text and tokenizer of bench/tokenizer_bench.cpp: encode_batch over all lines.

    TOKENIZER_TEXT=train.jsonl TOKENIZER=examples/tokenizers/gpt2 python bench/peers/tokenizer_hf.py --threads 2
"""
import argparse
import os
import time


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    os.environ["RAYON_NUM_THREADS"] = str(options.threads)
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if options.threads > 1 else "false"

    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    path = os.environ.get("TOKENIZER", "examples/tokenizers/gpt2")
    if os.path.exists(os.path.join(path, "tokenizer.json")):
        tokenizer = Tokenizer.from_file(os.path.join(path, "tokenizer.json"))
    else:
        tokenizer = Tokenizer(models.BPE.from_file(os.path.join(path, "vocab.json"), os.path.join(path, "merges.txt")))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
    with open(os.environ.get("TOKENIZER_TEXT", "tests/data/golden/TestPlans.txt"), newline="\n") as file:
        lines = file.read().split("\n")
    size = sum(len(line.encode()) for line in lines)
    times = []
    for _ in range(options.rounds):
        start = time.perf_counter()
        encoded = tokenizer.encode_batch_fast(lines, add_special_tokens=False)
        times.append(time.perf_counter() - start)
    best = min(times)
    tokens = sum(len(e.ids) for e in encoded)
    print(f"threads {options.threads}: {best * 1e3:.1f} ms, {size / best / 1e6:.2f} MB/s, {tokens} tokens")


main()
