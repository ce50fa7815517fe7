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

ARCHES = {"gemma3_text": gguf.MODEL_ARCH.GEMMA3, "qwen3_moe": gguf.MODEL_ARCH.QWEN3MOE,
          "qwen3_5_text": gguf.MODEL_ARCH.QWEN35, "qwen3_5_moe_text": gguf.MODEL_ARCH.QWEN35MOE}


def load(folder):
    tensors, _ = safetensors_file.read(folder / "model.safetensors")
    wide = {n: (a.astype("<u4") << 16).view("<f4") for n, a in tensors.items()}
    return wide, json.loads((folder / "config.json").read_text())


def count_experts(c):
    return c.get("num_local_experts", c.get("num_experts", 0))


def stack_experts(tensors, count):
    out = {}
    for name, array in tensors.items():
        if ".experts." not in name:
            out[name] = array
        elif ".experts.0." in name:
            parts = [tensors[name.replace(".experts.0.", f".experts.{e}.")] for e in range(count)]
            out[name.replace(".experts.0.", ".experts.")] = np.stack(parts)
    return out


def is_delta(c):
    return "linear_num_key_heads" in c


def tile(array, axis, c, size):
    """Value heads from key head by key head to the order of ggml's broadcasting."""
    keys, values = c["linear_num_key_heads"], c["linear_num_value_heads"]
    shape = list(array.shape)
    a = array.reshape(shape[:axis] + [keys, values // keys, size] + shape[axis + 1:])
    return np.swapaxes(a, axis, axis + 1).reshape(shape)


def convert_delta(name, a, c):
    keys = 2 * c["linear_num_key_heads"] * c["linear_key_head_dim"]
    size = c["linear_value_head_dim"]
    if "linear_attn" not in name:
        return a + np.float32(1) if name.endswith("norm.weight") else a
    if "in_proj_qkv" in name or "conv1d" in name:
        a = a.squeeze()
        return np.concatenate([a[:keys], tile(a[keys:], 0, c, size)])
    if "in_proj_z" in name:
        return tile(a, 0, c, size)
    if "out_proj" in name:
        return tile(a, 1, c, size)
    if name.endswith("A_log"):
        return tile(-np.exp(a), 0, c, 1)
    return a if "norm" in name else tile(a, 0, c, 1)


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
    if is_delta(c):
        w.add_ssm_conv_kernel(c["linear_conv_kernel_dim"])
        w.add_ssm_state_size(c["linear_key_head_dim"])
        w.add_ssm_group_count(c["linear_num_key_heads"])
        w.add_ssm_time_step_rank(c["linear_num_value_heads"])
        w.add_ssm_inner_size(c["linear_num_value_heads"] * c["linear_value_head_dim"])
        w.add_full_attention_interval(4)
        w.add_rope_dimension_count(int(c["head_dim"] * c["rope_parameters"]["partial_rotary_factor"]))
    rope = c["rope_parameters"]
    w.add_rope_freq_base(rope.get("full_attention", rope)["rope_theta"])
    if arch == gguf.MODEL_ARCH.GEMMA3:
        w.add_sliding_window(c["sliding_window"])
        w.add_sliding_window_pattern([t == "sliding_attention" for t in c["layer_types"]])
    elif "num_experts_per_tok" in c:
        w.add_expert_count(count_experts(c))
        w.add_expert_used_count(c["num_experts_per_tok"])
        w.add_expert_feed_forward_length(c["moe_intermediate_size"])
        if "shared_expert_intermediate_size" in c:
            w.add_expert_shared_feed_forward_length(c["shared_expert_intermediate_size"])


def make(source, path):
    tensors, c = load(source)
    arch = ARCHES[c["model_type"]]
    w = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[arch])
    add_metadata(w, c, arch)
    names = gguf.get_tensor_name_map(arch, c["num_hidden_layers"])
    for name, array in stack_experts(tensors, count_experts(c)).items():
        if arch == gguf.MODEL_ARCH.GEMMA3 and name.endswith("norm.weight"):
            array = array + np.float32(1)
        if is_delta(c):
            array = convert_delta(name, array, c)
        if name.endswith("shared_expert_gate.weight"):
            array = array.squeeze()
        if name.endswith("dt_bias"):
            name = name[:-len("dt_bias")] + "dt_proj.bias"
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
