#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the vectors that test_dtype.c and test_gguf.c compare with. Needs numpy and gguf 0.19.

    tests/golden/formats/make.py        writes beside itself

block_types.safetensors   for each block type T: "T.blocks" U8 [n][block bytes], random codes with
                          finite scales of both signs; "T.values" F32 [n][block elements], what the
                          gguf package makes of them
tiny-llama.gguf           a llama of one layer with permuted q and k, written by the gguf package
tiny-llama.safetensors    the same weights in Hugging Face order, F32
"""
import json
import pathlib
import struct

import gguf
import numpy as np

HERE = pathlib.Path(__file__).parent
rng = np.random.default_rng(7)


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, a in tensors.items():
        kind = {"uint8": "U8", "float32": "F32"}[a.dtype.name]
        raw = np.ascontiguousarray(a).tobytes()
        header[name] = {"dtype": kind, "shape": list(a.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-(len(text) + 8) % 64)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


# Where each type keeps its fp16 scales.
SCALES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82],
          "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}


def block_types():
    out = {}
    for name, places in SCALES.items():
        kind = gguf.GGMLQuantizationType[name]
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        n = 12 if elements == 32 else 6
        blocks = rng.integers(0, 256, (n, size), dtype=np.uint8)
        for p in places:
            scale = rng.standard_normal(n).astype(np.float16)
            scale[0], scale[1], scale[2] = 0, 6e-8, -65504  # zero, subnormal, the largest
            blocks[:, p:p + 2] = scale.view(np.uint8).reshape(n, 2)
        out[name + ".blocks"] = blocks
        out[name + ".values"] = gguf.quants.dequantize(blocks, kind).astype(np.float32)
    write_safetensors(HERE / "block_types.safetensors", out)


def permute(w, heads):
    """The row order of GGUF's llama: as its converter does, pairs side by side."""
    return w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def tiny_llama():
    hidden, heads, kv, dim, mlp, vocab = 64, 4, 2, 16, 32, 8
    shapes = {"model.embed_tokens.weight": (vocab, hidden), "model.norm.weight": (hidden,),
              "lm_head.weight": (vocab, hidden)}
    p = "model.layers.0."
    shapes |= {p + "input_layernorm.weight": (hidden,), p + "post_attention_layernorm.weight": (hidden,),
               p + "self_attn.q_proj.weight": (heads * dim, hidden),
               p + "self_attn.k_proj.weight": (kv * dim, hidden),
               p + "self_attn.v_proj.weight": (kv * dim, hidden),
               p + "self_attn.o_proj.weight": (hidden, heads * dim),
               p + "self_attn.q_proj.bias": (heads * dim,), p + "self_attn.k_proj.bias": (kv * dim,),
               p + "self_attn.v_proj.bias": (kv * dim,), p + "self_attn.o_proj.bias": (hidden,),
               p + "mlp.gate_proj.weight": (mlp, hidden), p + "mlp.up_proj.weight": (mlp, hidden),
               p + "mlp.down_proj.weight": (hidden, mlp)}
    hf = {k: rng.standard_normal(s).astype(np.float32) for k, s in shapes.items()}
    w = gguf.GGUFWriter(HERE / "tiny-llama.gguf", "llama")
    w.add_block_count(1)
    w.add_context_length(4096)
    w.add_embedding_length(hidden)
    w.add_feed_forward_length(mlp)
    w.add_head_count(heads)
    w.add_head_count_kv(kv)
    w.add_rope_dimension_count(dim)
    w.add_rope_freq_base(500000.0)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_tokenizer_model("gpt2")
    w.add_token_list([chr(97 + i) for i in range(vocab)])
    w.add_token_types([1] * vocab)
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)
    w.add_eot_token_id(5)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 1)
    for k, a in hf.items():
        name = names.get_name(k, try_suffixes=(".weight", ".bias"))
        n = heads if "q_proj" in k else kv if "k_proj" in k else 0
        w.add_tensor(name, permute(a, n) if n else a)
    # llama3's divisors for factor 8 in an original context of 1024.
    freqs = 1 / 500000.0 ** (np.arange(0, dim, 2) / dim)
    turns = 1024 * freqs / (2 * np.pi)
    smooth = (turns - 1) / 3
    factors = np.where(turns > 4, 1, np.where(turns < 1, 8, 1 / ((1 - smooth) / 8 + smooth)))
    w.add_tensor("rope_freqs.weight", factors.astype(np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    write_safetensors(HERE / "tiny-llama.safetensors", hf)


block_types()
tiny_llama()
