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


def llama_config(args, head):
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama",
            "hidden_size": args.hidden, "intermediate_size": args.mlp,
            "num_hidden_layers": args.layers, "num_attention_heads": args.heads,
            "num_key_value_heads": args.kv_heads, "head_dim": head,
            "vocab_size": args.vocabulary, "max_position_embeddings": 4096,
            "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu",
            "tie_word_embeddings": True, "torch_dtype": "bfloat16"}
