#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gradients of the golden checkpoints by torch, for tests/model/test_block.c. Needs torch and
transformers (made with 2.15 and 5.24).

    tests/golden/gradients/make_gradients.py        writes beside itself

NAME.safetensors  for checkpoint NAME, in double but for what transformers itself does in f32
                  (norms, softmax of attention, positions): input_ids and labels I32 [n], token i's
                  label belonging to its own logits; loss F32 [1], the summed cross entropy; for
                  each linear layer's output the gradient of that sum: MODULE F32 [3][out] at
                  tokens 1, 40 and 64, and MODULE.norms F32 [n], its length at every token
"""
import json
import pathlib
import struct

import numpy as np
import torch
import transformers

HERE = pathlib.Path(__file__).parent
N, TOKENS = 80, [1, 40, 64]


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, a in tensors.items():
        kind = {"int32": "I32", "float32": "F32"}[a.dtype.name]
        raw = np.ascontiguousarray(a).tobytes()
        header[name] = {"dtype": kind, "shape": list(a.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-(len(text) + 8) % 64)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def gradients(name):
    model = transformers.AutoModelForCausalLM.from_pretrained(
        HERE.parent / "checkpoints" / name, dtype=torch.float64, attn_implementation="eager")
    rng = np.random.default_rng(5)
    ids, labels = (rng.integers(0, model.config.vocab_size, N) for _ in range(2))
    outputs = {}

    def keep(module_name):
        def hook(module, args, output):
            output.retain_grad()
            outputs[module_name] = output
        return hook

    for module_name, module in model.model.named_modules():
        if isinstance(module, torch.nn.Linear):
            module.register_forward_hook(keep("model." + module_name))
    logits = model(torch.tensor(ids)[None], use_cache=False).logits[0]
    loss = torch.nn.functional.cross_entropy(logits.double(), torch.tensor(labels), reduction="sum")
    loss.backward()
    tensors = {"input_ids": ids.astype(np.int32), "labels": labels.astype(np.int32),
               "loss": np.array([loss.item()], np.float32)}
    for module_name, output in outputs.items():
        g = output.grad[0].numpy()
        tensors[module_name] = g[TOKENS].astype(np.float32)
        tensors[module_name + ".norms"] = np.linalg.norm(g, axis=1).astype(np.float32)
    return tensors


for name in ["llama-tied", "mistral-swa", "qwen2-bias", "qwen3-qknorm"]:
    write_safetensors(HERE / f"{name}.safetensors", gradients(name))
