#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the first inputs of fuzz/corpus for the targets of model files: small legal files that
reach every part of the readers. Needs numpy and gguf 0.19."""
import json
import pathlib
import struct

import gguf
import numpy as np

CORPUS = pathlib.Path(__file__).parent / "corpus"
SIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "U8": 1, "I8": 1, "U16": 2,
         "I16": 2, "U32": 4, "I32": 4, "U64": 8, "I64": 8, "BOOL": 1}


def safetensors(tensors, metadata=None):
    """tensors: name -> (dtype, shape). Header and data; the data counts up."""
    header, size = {}, 0
    if metadata:
        header["__metadata__"] = metadata
    for name, (kind, shape) in tensors.items():
        end = size + SIZES[kind] * int(np.prod(shape, dtype=int))
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [size, end]}
        size = end
    text = json.dumps(header, separators=(",", ":")).encode()
    return text, bytes(i * 37 % 256 for i in range(size))


def put(folder, name, data):
    (CORPUS / folder).mkdir(parents=True, exist_ok=True)
    (CORPUS / folder / name).write_bytes(data)


def whole(*args):
    text, data = safetensors(*args)
    return struct.pack("<Q", len(text)) + text + data


def in_parts(*args):
    return b"\0".join(safetensors(*args))


put("safetensors", "empty", whole({}))
put("safetensors", "two-tensors", whole({"a": ("F32", [2, 2]), "b.weight": ("BF16", [3])},
                                        {"format": "pt"}))
put("safetensors", "every-type", in_parts({k: (k, [1]) for k in SIZES}))
put("safetensors", "scalar-and-empty", in_parts({"s": ("F32", []), "e": ("F32", [0, 8])}))

LLAMA = {"architectures": ["LlamaForCausalLM"], "vocab_size": 4, "hidden_size": 32,
         "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
         "eos_token_id": [1, 2],
         "rope_scaling": {"rope_type": "yarn", "factor": 2, "mscale": 1, "mscale_all_dim": 2}}


def folder(name, config, tensors):
    put("folder", name, json.dumps(config, separators=(",", ":")).encode() + b"\0" +
        in_parts(tensors))


def trellis(axis, **more):
    return {"bits": 3, "group_size": 32, "mode": "trellis",
            "trellis": {"L": 12, "code": "1mad", "axis": axis, **more}}


rotation = {"kind": "hadamard", "block": 8, "seed": 1}
folder("dense", LLAMA, {"model.embed_tokens.weight": ("BF16", [4, 32])})
folder("affine", LLAMA | {"quantization": {"group_size": 32, "bits": 3}},
       {"a.weight": ("U32", [2, 3]), "a.scales": ("F16", [2, 1]), "a.biases": ("F16", [2, 1])})
folder("trellis", {"model_type": "x", "quantization": {
    "a": trellis(1, width=24, input_rotation=rotation, output_rotation=rotation, output_scale=True),
    "b": trellis(0), "c": False}},
       {"a.weight": ("U32", [8, 3]), "a.scales": ("F16", [8]), "a.output_scale": ("F32", [8]),
        "b.weight": ("U32", [2, 3]), "b.scales": ("F16", [2]), "c.weight": ("F32", [2, 2])})
folder("interleaved", {"quantization": {"a": trellis(0) | {"group_size": 256}}},
       {"a.weight": ("U32", [1, 1, 48]), "a.scales": ("F16", [1])})
folder("fp8", {"quantization_config": {"quant_method": "fp8", "weight_block_size": [3, 3]}},
       {"a.weight": ("F8_E4M3", [4, 4]), "a.weight_scale_inv": ("F32", [2, 2])})
for arch, more in [("Mistral", {"sliding_window": 8}),
                   ("Qwen2", {"num_key_value_heads": 1, "use_sliding_window": True}),
                   ("Qwen3", {"num_key_value_heads": 1, "layer_types": ["full_attention"]})]:
    folder(arch.lower(), LLAMA | {"architectures": [arch + "ForCausalLM"]} | more, {})


def gguf_model(name, arch, kinds, more=lambda w: None):
    path = CORPUS / "gguf" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    w = gguf.GGUFWriter(path, arch)
    w.add_block_count(1)
    w.add_context_length(64)
    w.add_embedding_length(32)
    w.add_feed_forward_length(32)
    w.add_head_count(2)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_token_list(["a", "bc"])
    w.add_token_scores([0.0, 1.0])
    w.add_token_types([1, 3])
    w.add_eos_token_id(1)
    more(w)
    for i, kind in enumerate(kinds):
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        block = np.full((2, max(1, 32 // elements) * size), 17, dtype=np.uint8)
        tensor = ["token_embd.weight", "blk.0.attn_q.weight", "blk.0.ffn_up.weight"][i % 3]
        w.add_tensor(tensor if i < 3 else f"t{i}", block, raw_dtype=kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


Q = gguf.GGMLQuantizationType
gguf_model("llama", "llama", [Q.F32, Q.Q8_0, Q.Q4_1])
gguf_model("qwen3", "qwen3", [Q.F16, Q.BF16, Q.Q4_0],
           lambda w: (w.add_rope_scaling_type(gguf.RopeScalingType.YARN),
                      w.add_rope_scaling_factor(4.0)))
gguf_model("blocks", "qwen2", [Q.Q5_0, Q.Q5_1, Q.Q2_K, Q.Q3_K, Q.Q4_K, Q.Q5_K, Q.Q6_K],
           lambda w: (w.add_array("nested", [[1, 2], [3]]), w.add_custom_alignment(64)))
