# SPDX-License-Identifier: Apache-2.0
"""Writes a golden checkpoint as the GGUF file that llama.cpp's converter makes of it, and compares a
folder with the checkpoint: gguf_family.py make SOURCE FILE | compare SOURCE FOLDER.

Names and metadata keys are those of the gguf package; as the converter does, norms of Gemma are
stored with the 1 that the model adds, and the experts of a layer in one tensor."""
import json
import pathlib
import sys

import gguf
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "golden"))
import safetensors_file  # noqa: E402

ARCHES = {"gemma3_text": gguf.MODEL_ARCH.GEMMA3, "qwen3_moe": gguf.MODEL_ARCH.QWEN3MOE}


def load(folder):
    tensors, _ = safetensors_file.read(folder / "model.safetensors")
    wide = {n: (a.astype("<u4") << 16).view("<f4") for n, a in tensors.items()}
    return wide, json.loads((folder / "config.json").read_text())


def stack_experts(tensors, count):
    out = {}
    for name, array in tensors.items():
        if ".experts." not in name:
            out[name] = array
        elif ".experts.0." in name:
            parts = [tensors[name.replace(".experts.0.", f".experts.{e}.")] for e in range(count)]
            out[name.replace(".experts.0.", ".experts.")] = np.stack(parts)
    return out


def add_metadata(w, c, arch):
    w.add_context_length(c["max_position_embeddings"])
    w.add_embedding_length(c["hidden_size"])
    w.add_block_count(c["num_hidden_layers"])
    w.add_feed_forward_length(c["intermediate_size"])
    w.add_head_count(c["num_attention_heads"])
    w.add_head_count_kv(c["num_key_value_heads"])
    w.add_layer_norm_rms_eps(c["rms_norm_eps"])
    w.add_key_length(c["head_dim"])
    w.add_value_length(c["head_dim"])
    rope = c["rope_parameters"]
    w.add_rope_freq_base(rope.get("full_attention", rope)["rope_theta"])
    if arch == gguf.MODEL_ARCH.GEMMA3:
        w.add_sliding_window(c["sliding_window"])
        w.add_sliding_window_pattern([t == "sliding_attention" for t in c["layer_types"]])
    else:
        w.add_expert_count(c["num_local_experts"])
        w.add_expert_used_count(c["num_experts_per_tok"])
        w.add_expert_feed_forward_length(c["moe_intermediate_size"])


def make(source, path):
    tensors, c = load(source)
    arch = ARCHES[c["model_type"]]
    w = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[arch])
    add_metadata(w, c, arch)
    names = gguf.get_tensor_name_map(arch, c["num_hidden_layers"])
    for name, array in stack_experts(tensors, c.get("num_local_experts", 0)).items():
        if arch == gguf.MODEL_ARCH.GEMMA3 and name.endswith("norm.weight"):
            array = array + np.float32(1)
        w.add_tensor(names.get_name(name, (".weight", ".bias")), array)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def compare(source, folder):
    want, c = load(source)
    got, made = load(folder)
    assert sorted(want) == sorted(got), set(want) ^ set(got)
    for name in want:
        assert np.allclose(want[name], got[name], rtol=0, atol=1e-6), name
    for key in ("model_type", "architectures", "hidden_size", "head_dim", "num_hidden_layers",
                "rms_norm_eps", "rope_parameters", "tie_word_embeddings", "sliding_window",
                "layer_types", "query_pre_attn_scalar", "num_local_experts", "num_experts_per_tok",
                "moe_intermediate_size", "norm_topk_prob"):
        if key in c:
            assert made.get(key) == c[key], (key, made.get(key), c[key])


if __name__ == "__main__":
    {"make": make, "compare": compare}[sys.argv[1]](*map(pathlib.Path, sys.argv[2:]))
