# SPDX-License-Identifier: Apache-2.0
"""What random models of one shape have in common: their linear layers and their config."""


def linear_layers(args, head):
    """(name, outputs, inputs) of a layer's; head: numbers of one."""
    return (("self_attn.q_proj", args.heads * head, args.hidden),
            ("self_attn.k_proj", args.kv_heads * head, args.hidden),
            ("self_attn.v_proj", args.kv_heads * head, args.hidden),
            ("self_attn.o_proj", args.hidden, args.heads * head),
            ("mlp.gate_proj", args.mlp, args.hidden),
            ("mlp.up_proj", args.mlp, args.hidden),
            ("mlp.down_proj", args.hidden, args.mlp))


DELTA = {"linear_num_key_heads": 16, "linear_num_value_heads": 48, "linear_key_head_dim": 128,
         "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4}
DELTA_KEYS, DELTA_VALUES, DELTA_CHANNELS = 16 * 128, 48 * 128, 2 * 16 * 128 + 48 * 128


def is_delta(i):
    return (i + 1) % 4 != 0


def qwen35_layers(args, head, i):
    """The same of layer i of a Qwen3.5, whose delta nets have the sizes of the 27B model."""
    attention, mlp = linear_layers(args, head)[:4], linear_layers(args, head)[4:]
    name, out, inputs = attention[0]
    if not is_delta(i):
        return ((name, 2 * out, inputs),) + attention[1:] + mlp
    return (("linear_attn.in_proj_qkv", DELTA_CHANNELS, args.hidden),
            ("linear_attn.in_proj_z", DELTA_VALUES, args.hidden),
            ("linear_attn.out_proj", args.hidden, DELTA_VALUES)) + mlp


def qwen35_config(args, head):
    rope = {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25}
    return {**llama_config(args, head), "architectures": ["Qwen3_5ForCausalLM"],
            "model_type": "qwen3_5_text", **DELTA, "full_attention_interval": 4,
            "rope_parameters": rope}


def llama_config(args, head):
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama",
            "hidden_size": args.hidden, "intermediate_size": args.mlp,
            "num_hidden_layers": args.layers, "num_attention_heads": args.heads,
            "num_key_value_heads": args.kv_heads, "head_dim": head,
            "vocab_size": args.vocabulary, "max_position_embeddings": 4096,
            "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu",
            "tie_word_embeddings": True, "torch_dtype": "bfloat16"}
