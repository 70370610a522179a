#!/usr/bin/env python3
"""Makes examples/data from the original files of GSM8K and PubMedQA (examples/data/README.md says where they come from).

    tools/make_example_data.py GSM8K_TRAIN.jsonl ORI_PQAL.json examples/data

Every record becomes {"prompt", "completion"}; nothing else is changed, and nothing is left out. A record is held out for
evaluation when the first byte of the SHA-256 of its prompt is below the share times 256, so the split depends on no
order and no random state. Written with gzip, without a time stamp: the same input gives the same bytes.
"""
import gzip
import hashlib
import json
import pathlib
import sys

HELD_OUT = {"gsm8k": 12, "pubmedqa": 26}  # of 256: a twentieth and a tenth


def gsm8k(path):
    with open(path, encoding="utf-8") as file:
        for line in file:
            record = json.loads(line)
            yield {"prompt": f"Question: {record['question']}\nAnswer:", "completion": f" {record['answer']}"}


def pubmedqa(path):
    with open(path, encoding="utf-8") as file:
        records = json.load(file)
    for key in sorted(records, key=int):
        record = records[key]
        context = "\n".join(record["CONTEXTS"])
        yield {"prompt": f"{context}\nQuestion: {record['QUESTION']}\nAnswer:", "completion": f" {record['LONG_ANSWER']}"}


def write(path, records):
    text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    path.write_bytes(gzip.compress(text.encode("utf-8"), 9, mtime=0))
    print(f"{path}: {len(records)} records, {path.stat().st_size} bytes")


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[3])
    for name, records in (("gsm8k", gsm8k(sys.argv[1])), ("pubmedqa", pubmedqa(sys.argv[2]))):
        parts = {"train": [], "eval": []}
        for record in records:
            first = hashlib.sha256(record["prompt"].encode("utf-8")).digest()[0]
            parts["eval" if first < HELD_OUT[name] else "train"].append(record)
        for part, chosen in parts.items():
            write(folder / f"{name}-{part}.jsonl.gz", chosen)


main()
