#!/usr/bin/env python3
"""Draws tiny random models of every family with transformers and stores what Ballast has to reproduce.

Each case is a model folder (config.json and safetensors, as save_pretrained writes them) beside golden.safetensors:
  ids.0, ids.1       two sequences of token ids
  logits.0, logits.1 [length, vocab] in fp32
  loss               sum of the next-token losses of both sequences / their number
  grad.NAME          d loss / d NAME
  generated          greedy continuation of the first tokens of ids.0
Needs torch, transformers 5 and safetensors. Run it from this folder: python make_model_golden.py
"""
import json
import os
import shutil

import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

LENGTHS = (21, 12)
VOCAB = 97
PROMPT, NEW_TOKENS = 4, 14

LLAMA = dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64, bos_token_id=1, eos_token_id=0)
GPT2 = dict(vocab_size=VOCAB, n_positions=24, n_embd=32, n_layer=2, n_head=4, resid_pdrop=0.0, embd_pdrop=0.0,
            attn_pdrop=0.0, bos_token_id=0, eos_token_id=0)

# name: (model type, configuration, storage dtype, largest shard)
CASES = {
    "gpt2": ("gpt2", GPT2, torch.float32, "1GB"),
    "gpt2-untied": ("gpt2", GPT2 | dict(n_inner=40, activation_function="relu", tie_word_embeddings=False),
                    torch.float16, "1GB"),
    "llama2": ("llama", LLAMA | dict(num_key_value_heads=4), torch.bfloat16, "20KB"),
    "llama3": ("llama", LLAMA | dict(head_dim=16, tie_word_embeddings=True, max_position_embeddings=128,
                                     rope_parameters=dict(rope_type="llama3", rope_theta=5000.0, factor=8.0,
                                                          low_freq_factor=1.0, high_freq_factor=4.0,
                                                          original_max_position_embeddings=16)), torch.bfloat16, "1GB"),
    "llama-linear": ("llama", LLAMA | dict(attention_bias=True, mlp_bias=True,
                                           rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=2.0)),
                     torch.bfloat16, "1GB"),
    "llama-dynamic": ("llama", LLAMA | dict(num_hidden_layers=1,
                                            rope_parameters=dict(rope_type="dynamic", rope_theta=10000.0, factor=2.0)),
                      torch.bfloat16, "1GB"),
    "llama-yarn": ("llama", LLAMA | dict(head_dim=16, num_hidden_layers=1,
                                         rope_parameters=dict(rope_type="yarn", rope_theta=10000.0, factor=4.0,
                                                              original_max_position_embeddings=16)),
                   torch.bfloat16, "1GB"),
    "mistral": ("mistral", LLAMA | dict(sliding_window=5), torch.bfloat16, "1GB"),
    "qwen2": ("qwen2", LLAMA | dict(tie_word_embeddings=True, use_sliding_window=True, sliding_window=4,
                                    max_window_layers=1), torch.bfloat16, "1GB"),
    "qwen3": ("qwen3", LLAMA | dict(head_dim=16, rms_norm_eps=1e-5), torch.bfloat16, "1GB"),
}


def draw(model, generator):
    """Weights large enough that every part of the arithmetic shows in the logits."""
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            noise = torch.randn(tensor.shape, generator=generator)
            if "norm" in name or ".ln_" in name:
                tensor.copy_((0.0 if name.endswith("bias") else 1.0) + 0.1 * noise)
            elif tensor.dim() == 1:
                tensor.copy_(0.1 * noise)
            else:
                tensor.copy_(noise * (0.5 if "wte" in name or "wpe" in name or "embed" in name else 0.25))


def make(name, model_type, values, dtype, shard):
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), name)
    shutil.rmtree(folder, ignore_errors=True)
    generator = torch.Generator().manual_seed(sum(map(ord, name)))
    config = AutoConfig.for_model(model_type, **values)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.float32)
    draw(model, generator)
    model.to(dtype).save_pretrained(folder, max_shard_size=shard)  # rounds the weights too
    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()

    golden, losses = {}, []
    for index, length in enumerate(LENGTHS):
        ids = torch.randint(1, VOCAB, (length,), generator=generator)
        logits = model(ids[None]).logits[0]
        losses.append(torch.nn.functional.cross_entropy(logits[:-1], ids[1:], reduction="sum"))
        golden |= {f"ids.{index}": ids, f"logits.{index}": logits.detach()}
    loss = sum(losses) / (sum(LENGTHS) - len(LENGTHS))
    loss.backward()
    golden["loss"] = loss.detach().reshape(1)
    for tensor_name, tensor in model.named_parameters():
        golden["grad." + tensor_name] = tensor.grad
    out = model.generate(golden["ids.0"][None, :PROMPT], do_sample=False, max_new_tokens=NEW_TOKENS,
                         eos_token_id=VOCAB + 1, pad_token_id=0)
    golden["generated"] = out[0, PROMPT:]
    save_file({key: value.contiguous() for key, value in golden.items()}, os.path.join(folder, "golden.safetensors"))
    for extra in ("generation_config.json",):
        if os.path.exists(os.path.join(folder, extra)):
            os.remove(os.path.join(folder, extra))
    size = sum(os.path.getsize(os.path.join(folder, file)) for file in os.listdir(folder))
    print(json.dumps(dict(case=name, loss=loss.item(), bytes=size)))


if __name__ == "__main__":
    for name, case in CASES.items():
        make(name, *case)
