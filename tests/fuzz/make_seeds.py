#!/usr/bin/env python3
"""Writes small valid inputs of every fuzz target, so that fuzzing starts behind the first check of each format.

    tests/fuzz/make_seeds.py FOLDER      FOLDER/fuzz_NAME/*
"""
import gzip
import json
import pathlib
import struct
import sys

root = pathlib.Path(__file__).resolve().parent.parent.parent
out = pathlib.Path(sys.argv[1])


def seed(target, name, data):
    folder = out / f"fuzz_{target}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data.encode() if isinstance(data, str) else data)


def configurations():
    for path in sorted((root / "examples").glob("*.yaml")):
        seed("config", path.stem, path.read_text())
    seed("config", "overrides", b"model: {preset: gpt2-10m}\ntrain: {steps: 2}\n\xffoptimizer.lr=3e-4")
    seed("config", "table", "topology: {pair: 2, node: 2}\nplacement:\n  weights: {shard: pair}\n  gradients: {shard: node}\n"
                            "  optimizer: {shard: node, storage: fp32}\n  wire: {forward: int8, reduce: [int4, native]}\n"
                            "a: &x {b: 1}\nc: *x\n")


def records():
    lines = gzip.open(root / "examples/data/gsm8k-eval.jsonl.gz", "rt").read().splitlines()[:3]
    chat = json.dumps({"messages": [{"role": "system", "content": "Be short."}, {"role": "user", "content": "A é?"},
                                    {"role": "assistant", "content": "\u0661."}]})
    # The first byte is format + 3 * compression + 9 * (chunk - 1): text, prompt-completion, chat; none, gzip, zstd.
    seed("jsonl", "text", bytes([0]) + b'{"text": "one"}\r\n\n{"text": "\\ud83d\\ude00 two", "x": [1, {"y": null}]}\n')
    seed("jsonl", "prompts", bytes([1 + 9 * 20]) + "\n".join(lines).encode())
    seed("jsonl", "chat", bytes([2 + 9 * 5]) + chat.encode() + b"\n")
    seed("jsonl", "gzip", bytes([3]) + gzip.compress(b'{"text": "packed"}\n' * 3, mtime=0))


def tokenizers():
    words = ["a", "b", "c", "t", "h", "e", "\u0120", "th", "the", "\u0120the", "<|end|>"]
    base = {"version": "1.0", "truncation": None, "padding": None,
            "added_tokens": [{"id": 10, "content": "<|end|>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}],
            "normalizer": None, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
            "post_processor": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True},
            "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "", "end_of_word_suffix": "", "fuse_unk": False,
                      "byte_fallback": False, "vocab": {word: i for i, word in enumerate(words)}, "merges": ["t h", "th e", "\u0120 the"]}}
    seed("tokenizer_json", "gpt2", json.dumps(base))
    pattern = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
    split = {"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False},
                                                  {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]}
    template = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<|end|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                "pair": [], "special_tokens": {"<|end|>": {"id": "<|end|>", "ids": [10], "tokens": ["<|end|>"]}}}
    model = dict(base["model"], ignore_merges=True, merges=[["t", "h"], ["th", "e"], ["\u0120", "the"]])
    seed("tokenizer_json", "llama3", json.dumps(dict(base, pre_tokenizer=split, post_processor=template, model=model)))
    seed("tokenizer_json", "qwen", json.dumps(dict(base, normalizer={"type": "NFC"}, pre_tokenizer=split)))


def safetensors():
    def file(header, data):
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        return struct.pack("<Q", len(text)) + text + data
    seed("safetensors", "two", file({"__metadata__": {"format": "pt"}, "a": {"dtype": "F32", "shape": [2, 1], "data_offsets": [0, 8]},
                                     "b": {"dtype": "BF16", "shape": [3], "data_offsets": [8, 14]}}, bytes(range(14))))
    seed("safetensors", "kinds", file({"h": {"dtype": "F16", "shape": [1], "data_offsets": [0, 2]}, "d": {"dtype": "F64", "shape": [], "data_offsets": [2, 10]},
                                       "e": {"dtype": "I64", "shape": [0, 3], "data_offsets": [10, 10]}}, bytes(10)))
    seed("safetensors", "empty", file({}, b""))


def stores():
    # As src/ballast/data/store_footer.h lays it out; the target writes the checksums.
    def store(lengths, spans):
        tokens = sum(lengths)
        offsets = [sum(lengths[:i]) for i in range(len(lengths) + 1)]
        flat = [span for record in spans for span in record] if spans else []
        index = [sum(len(record) for record in spans[:i]) for i in range(len(lengths) + 1)] if spans else []
        sources = json.dumps({"files": [{"path": "a.jsonl", "records": len(lengths)}]}).encode()
        regions = [b"".join(struct.pack("<H", i % 250) for i in range(tokens)), struct.pack(f"<{len(offsets)}Q", *offsets),
                   struct.pack(f"<{len(index)}Q", *index), b"".join(struct.pack("<2q", *span) for span in flat), bytes(8), sources]
        data, places = b"BALTOK1\n".ljust(4096, b"\0"), []
        for region in regions:
            data += bytes(-len(data) % 64)
            places.append((len(data), len(region), 0))
            data += region
        data += bytes(-len(data) % 64)
        footer = struct.pack("<10Q", 7, 257, len(lengths), tokens, tokens, len(flat), min(tokens, 250) - 1, 256, 0, 0 if spans else 1)
        footer += b"".join(struct.pack("<3Q", *place) for place in places)
        footer += struct.pack("<QII", len(data) + len(footer) + 32, 1, 2) + b"BALTOK1\n" + bytes(8)
        return data + footer
    seed("token_store", "text", store([9, 3, 30], None))
    seed("token_store", "spans", store([9, 3, 30], [[(4, 9)], [], [(1, 2), (5, 30)]]))
    seed("token_store", "llmc", struct.pack("<256i", 20240520, 1, 5, *[0] * 253) + struct.pack("<5H", 1, 2, 3, 4, 5))
    # Tokens and index in equal halves.
    sizes = [4, 10]
    index = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, len(sizes), len(sizes) + 1) + struct.pack("<2i2q3q", *sizes, 0, 8, 0, 1, 2)
    tokens = len(index) // 2
    sizes = [4, tokens - 4]
    index = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, len(sizes), len(sizes) + 1) + struct.pack("<2i2q3q", *sizes, 0, 8, 0, 1, 2)
    seed("token_store", "megatron", struct.pack(f"<{tokens}H", *range(tokens)) + index)


def checkpoints():
    state = {"format": "ballast-state", "step": 3, "ranks": 2, "seed": 7, "config_fingerprint": "0" * 16, "layout_fingerprint": "1" * 16,
             "topology": "{node: 2}", "cursor": {"step": 3}, "schedule": {}, "metrics": {"loss": 2.5}}
    seed("checkpoint", "state", json.dumps(state, indent=1) + "\n")
    files = [{"bytes": 8, "path": "model/model.safetensors", "xxh3": "0" * 16}]
    seed("checkpoint", "manifest", json.dumps({"files": files, "format": "ballast-checkpoint", "manifest_xxh3": "0" * 16, "step": 3, "version": 1}, indent=1) + "\n")
    seed("checkpoint", "item", "optimizer.m/transformer.h.0.attn.weight@0:128")
    seed("checkpoint", "metrics", '{"step": 1, "loss": 10.5, "lr": 0.001, "grad_norm": 1.5, "tokens": 64, "tokens_per_s": 41.5, "time_s": 1.2, "memory_bytes": 100, "bytes": {"node": 80}}')


for make in (configurations, records, tokenizers, safetensors, stores, checkpoints):
    make()
