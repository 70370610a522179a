#!/usr/bin/env python3
"""Opens a model folder that Ballast wrote in transformers and compares it with the folder it came from.

  check_hf_roundtrip.py WRITTEN SOURCE     SOURCE: the original model folder; if it holds golden.safetensors
                                           (tests/model/golden), its stored logits are compared too
Prints the largest difference of the logits relative to the largest logit, and fails above --bound. Needs torch,
transformers and safetensors.
"""
import argparse
import os
import sys

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM


def logits_of(folder, ids):
    model, info = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager",
                                                       output_loading_info=True)
    for what in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if info.get(what):
            sys.exit(f"{folder}: {what}: {sorted(info[what])[:10]}")
    with torch.no_grad():
        return [model.eval()(sequence[None]).logits[0] for sequence in ids], model.config


def difference(found, expected):
    return max(((a - b).abs().max() / b.abs().max()).item() for a, b in zip(found, expected))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("written")
    parser.add_argument("source")
    parser.add_argument("--bound", type=float, default=1e-5, help="largest relative difference (bf16 storage needs 2e-2)")
    arguments = parser.parse_args()

    golden_file = os.path.join(arguments.source, "golden.safetensors")
    golden = load_file(golden_file) if os.path.exists(golden_file) else {}
    if golden:
        ids = [golden["ids.0"], golden["ids.1"]]
    else:
        from transformers import AutoConfig
        vocab = AutoConfig.from_pretrained(arguments.source).vocab_size
        ids = [torch.randint(vocab, (17,), generator=torch.Generator().manual_seed(1))]
    written, config = logits_of(arguments.written, ids)
    source, _ = logits_of(arguments.source, ids)
    results = {"source": difference(written, source)}
    if golden:
        results["golden"] = difference(written, [golden["logits.0"], golden["logits.1"]])
    print(f"{arguments.written}: {config.model_type}, first logits {[round(x, 5) for x in written[0][-1, :4].tolist()]}, "
          + ", ".join(f"difference to {name} {value:.2e}" for name, value in results.items()))
    if not max(results.values()) <= arguments.bound:
        sys.exit(f"{arguments.written}: above the bound {arguments.bound}")


if __name__ == "__main__":
    main()
