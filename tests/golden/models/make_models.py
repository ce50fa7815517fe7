#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Small one-layer models and their logits, computed with numpy in double.

Writes weights_*.safetensors and cases.json: for each case a config.json, the weights it goes with
and logits after some positions of a fixed sequence of ids, id(i) = splitmix64(i) mod vocab. Rotary
frequencies follow the formulas of Hugging Face transformers (modeling_rope_utils), written here in
numpy; they are part of the cases. One layer, so that a late position needs no earlier query.

    python3 tests/golden/models/make_models.py
"""
import json
import math
import os
import struct

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
VOCAB, HIDDEN, INNER, HEADS, KV_HEADS = 32, 32, 32, 4, 2


def bf16(a):
    u = np.ascontiguousarray(a, np.float32).view(np.uint32).astype(np.uint64)
    return ((u + 0x7FFF + (u >> 16 & 1)) >> 16).astype(np.uint16)


def bf16_value(h):
    return (h.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, bits in tensors.items():
        raw = bits.tobytes()
        header[name] = {"dtype": "BF16", "shape": list(bits.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def make_weights(name, head_dim, biases=False, qk_norm=False, seed=0):
    rng = np.random.default_rng(seed)
    layer = "model.layers.0."
    shapes = {
        "model.embed_tokens": (VOCAB, HIDDEN, 1.0),
        layer + "self_attn.q_proj": (HEADS * head_dim, HIDDEN, 0.35),
        layer + "self_attn.k_proj": (KV_HEADS * head_dim, HIDDEN, 0.35),
        layer + "self_attn.v_proj": (KV_HEADS * head_dim, HIDDEN, 0.3),
        layer + "self_attn.o_proj": (HIDDEN, HEADS * head_dim, 0.3),
        layer + "mlp.gate_proj": (INNER, HIDDEN, 0.2),
        layer + "mlp.up_proj": (INNER, HIDDEN, 0.2),
        layer + "mlp.down_proj": (HIDDEN, INNER, 0.2),
        "lm_head": (VOCAB, HIDDEN, 0.3),
    }
    bits = {}
    for module, (out, inp, std) in shapes.items():
        bits[module + ".weight"] = bf16(rng.normal(0, std, (out, inp)))
        if biases and module.split(".")[-1] in ("q_proj", "k_proj", "v_proj"):
            bits[module + ".bias"] = bf16(rng.normal(0, 6, out))
    norms = [layer + "input_layernorm", layer + "post_attention_layernorm", "model.norm"]
    if qk_norm:
        norms += [layer + "self_attn.q_norm", layer + "self_attn.k_norm"]
    for norm in norms:
        width = head_dim if norm.endswith(("q_norm", "k_norm")) else HIDDEN
        bits[norm + ".weight"] = bf16(rng.uniform(0.5, 1.5, width))
    write_safetensors(os.path.join(HERE, f"weights_{name}.safetensors"), bits)
    return {k: bf16_value(v) for k, v in bits.items()}


def mix64(i):
    m = (1 << 64) - 1
    z = (i * 0x9E3779B97F4A7C15) & m
    z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & m
    z = ((z ^ z >> 27) * 0x94D049BB133111EB) & m
    return z ^ z >> 31


def ids(n):
    return np.array([mix64(i + 1) % VOCAB for i in range(n)])


def rope_config(config):
    """The old and the new place of the parameters, as one dict."""
    p = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    p.setdefault("rope_theta", config.get("rope_theta", 10000.0))
    p.setdefault("rope_type", p.get("type", "default"))
    p.setdefault("original_max_position_embeddings", config["max_position_embeddings"])
    return p


def rope_frequencies(p, dim):
    """inv_freq and the attention factor."""
    base = p["rope_theta"]
    inv = 1.0 / base ** (np.arange(0, dim, 2) / dim)
    kind, factor = p["rope_type"], p.get("factor", 1.0)
    if kind == "default":
        return inv, 1.0
    if kind == "linear":
        return inv / factor, 1.0
    original = p["original_max_position_embeddings"]
    if kind == "llama3":
        low, high = p["low_freq_factor"], p["high_freq_factor"]
        wavelen = 2 * math.pi / inv
        smooth = (original / wavelen - low) / (high - low)
        blended = (1 - smooth) * inv / factor + smooth * inv
        out = np.where(wavelen > original / low, inv / factor, inv)
        medium = ~(wavelen < original / high) & ~(wavelen > original / low)
        return np.where(medium, blended, out), 1.0
    assert kind == "yarn"

    def get_mscale(scale, mscale=1.0):
        return 1.0 if scale <= 1 else 0.1 * mscale * math.log(scale) + 1.0

    attention = p.get("attention_factor")
    if attention is None:
        if p.get("mscale") and p.get("mscale_all_dim"):
            attention = get_mscale(factor, p["mscale"]) / get_mscale(factor, p["mscale_all_dim"])
        else:
            attention = get_mscale(factor)

    def correction(rotations):
        return dim * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(base))

    low, high = correction(p.get("beta_fast", 32)), correction(p.get("beta_slow", 1))
    if p.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    if low == high:
        high += 0.001
    keep = 1 - np.clip((np.arange(dim // 2) - low) / (high - low), 0, 1)
    return inv / factor * (1 - keep) + inv * keep, attention


def rms_norm(x, gain, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * gain


def turn(x, frequencies, attention, positions):
    """x [n, heads, D], rotated by halves; the angle is a product in f32."""
    angle = (positions.astype(np.float32)[:, None] *
             frequencies.astype(np.float32)[None]).astype(np.float64)
    c, s = (np.cos(angle) * attention)[:, None], (np.sin(angle) * attention)[:, None]
    a, b = np.split(x, 2, -1)
    return np.concatenate([a * c - b * s, b * c + a * s], -1)


def logits(w, config, positions, window):
    head_dim = config.get("head_dim") or HIDDEN // HEADS
    eps, n = config["rms_norm_eps"], max(positions) + 1
    frequencies, attention = rope_frequencies(rope_config(config), head_dim)
    layer = "model.layers.0."
    x = w["model.embed_tokens.weight"][ids(n)]
    h = rms_norm(x, w[layer + "input_layernorm.weight"], eps)

    def project(module, rows, heads):
        y = rows @ w[layer + f"self_attn.{module}.weight"].T
        y = y + w.get(layer + f"self_attn.{module}.bias", 0.0)
        return y.reshape(len(rows), heads, head_dim)

    at = np.array(positions)
    q, k, v = project("q_proj", h[at], HEADS), project("k_proj", h, KV_HEADS), project(
        "v_proj", h, KV_HEADS)
    if layer + "self_attn.q_norm.weight" in w:
        q = rms_norm(q, w[layer + "self_attn.q_norm.weight"], eps)
        k = rms_norm(k, w[layer + "self_attn.k_norm.weight"], eps)
    q, k = turn(q, frequencies, attention, at), turn(k, frequencies, attention, np.arange(n))
    mixed = np.zeros_like(q)
    for i, position in enumerate(positions):
        first = max(0, position - window + 1) if window else 0
        for head in range(HEADS):
            kv = head // (HEADS // KV_HEADS)
            score = k[first:position + 1, kv] @ q[i, head] / math.sqrt(head_dim)
            p = np.exp(score - score.max())
            mixed[i, head] = p / p.sum() @ v[first:position + 1, kv]
    y = x[at] + mixed.reshape(len(at), -1) @ w[layer + "self_attn.o_proj.weight"].T
    h = rms_norm(y, w[layer + "post_attention_layernorm.weight"], eps)
    gate = h @ w[layer + "mlp.gate_proj.weight"].T
    up = h @ w[layer + "mlp.up_proj.weight"].T
    y = y + (gate / (1 + np.exp(-gate)) * up) @ w[layer + "mlp.down_proj.weight"].T
    y = rms_norm(y, w["model.norm.weight"], eps)
    head = w["model.embed_tokens.weight" if config["tie_word_embeddings"] else "lm_head.weight"]
    return y @ head.T


LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": VOCAB,
    "hidden_size": HIDDEN, "intermediate_size": INNER, "num_hidden_layers": 1,
    "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": 16,
    "max_position_embeddings": 16384, "rms_norm_eps": 1e-5, "hidden_act": "silu",
    "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": False,
    "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "bfloat16",
}


def rope(**p):
    return {**LLAMA, "rope_parameters": p}


def without(config, key):
    return {k: v for k, v in config.items() if k != key}


YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0,
            original_max_position_embeddings=256)
SMALL = {**LLAMA, "head_dim": 8, "rope_theta": 10000.0}
QWEN2 = {**without(without(SMALL, "head_dim"), "attention_bias"), "model_type": "qwen2",
         "architectures": ["Qwen2ForCausalLM"]}
WINDOW = {"sliding_window": 32, "max_window_layers": 0}

# name, weights, config, positions, window in effect
CASES = [
    ("theta under rope_parameters", "wide", rope(rope_theta=1e6, rope_type="default"),
     [0, 100, 3000], 0),
    ("theta at the top", "wide", {**LLAMA, "rope_theta": 1e6}, [3000], 0),
    ("llama3", "wide",
     rope(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0,
          high_freq_factor=4.0, original_max_position_embeddings=1024), [100, 9000], 0),
    ("linear, old form", "wide",
     {**LLAMA, "rope_theta": 10000.0, "rope_scaling": {"type": "linear", "factor": 4.0}},
     [50, 700], 0),
    ("yarn", "wide", rope(**YARN), [10, 900], 0),
    ("yarn with mscale", "wide", rope(**YARN, mscale=0.8, mscale_all_dim=0.4), [900], 0),
    ("yarn with attention_factor", "wide", rope(**YARN, attention_factor=1.3), [900], 0),
    ("yarn without truncation", "wide", rope(**YARN, truncate=False), [900], 0),
    ("yarn with other betas", "wide", rope(**YARN, beta_fast=16, beta_slow=2), [900], 0),
    ("head_dim is not hidden / heads", "wide", {**LLAMA, "rope_theta": 10000.0}, [0, 20], 0),
    ("head_dim given", "small", SMALL, [0, 20], 0),
    ("head_dim absent", "small", without(SMALL, "head_dim"), [0, 20], 0),
    ("head_dim null", "small", {**SMALL, "head_dim": None}, [0, 20], 0),
    ("tied head", "small", {**SMALL, "tie_word_embeddings": True}, [20], 0),
    ("large biases", "bias", QWEN2, [0, 20], 0),
    ("window null", "bias", {**QWEN2, "sliding_window": None}, [100], 0),
    ("window switched off", "bias", {**QWEN2, **WINDOW, "use_sliding_window": False}, [100], 0),
    ("window switched on", "bias", {**QWEN2, **WINDOW, "use_sliding_window": True},
     [30, 31, 32, 33, 100], 32),
    ("mistral window", "small",
     {**SMALL, "model_type": "mistral", "architectures": ["MistralForCausalLM"],
      "sliding_window": 32}, [31, 32, 100], 32),
    ("mistral window null", "small",
     {**SMALL, "model_type": "mistral", "architectures": ["MistralForCausalLM"],
      "sliding_window": None}, [100], 0),
    ("window past a span", "small",
     {**SMALL, "model_type": "mistral", "architectures": ["MistralForCausalLM"],
      "sliding_window": 600}, [511, 512, 599, 600, 1300], 600),
    ("norms of q and k", "qknorm",
     {**LLAMA, "model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"],
      "rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}}, [0, 700], 0),
]


def main():
    weights = {
        "wide": make_weights("wide", 16, seed=1),
        "small": make_weights("small", 8, seed=2),
        "bias": make_weights("bias", 8, biases=True, seed=3),
        "qknorm": make_weights("qknorm", 16, qk_norm=True, seed=4),
    }
    cases = []
    for name, which, config, positions, window in CASES:
        head_dim = config.get("head_dim") or HIDDEN // HEADS
        frequencies, attention = rope_frequencies(rope_config(config), head_dim)
        rows = logits(weights[which], config, positions, window)
        cases.append({
            "name": name, "weights": f"weights_{which}.safetensors", "config": config,
            "frequencies": frequencies.tolist(), "attention_factor": attention,
            "positions": positions,
            "logits": [[round(float(v), 5) for v in row] for row in rows],
        })
    with open(os.path.join(HERE, "cases.json"), "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")


main()
