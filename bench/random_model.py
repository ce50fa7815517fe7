#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a packed model of any size with random codes: as fast to run as a real one, and of no
other use. Needs nothing but Python.

    python3 bench/random_model.py OUT --hidden 5120 --mlp 17408 --layers 4 --bits 3
    python3 bench/random_model.py OUT --family qwen3.5 --heads 24 --kv-heads 4 --head-dim 256
    pleach bench OUT
"""
import argparse
import json
import os
import struct
import sys

from random_shapes import (DELTA_CHANNELS, is_delta, linear_layers, llama_config, qwen35_config,
                           qwen35_layers)

FP16_SCALE = struct.pack("<e", 0.01)
BF16_ONE = struct.pack("<H", 0x3F80)
BF16_SMALL = struct.pack("<H", 0x3A00)
PIECE = 1 << 20
POOL = 1 << 26


def parse():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    p.add_argument("out", help="folder to make")
    p.add_argument("--family", choices=("llama", "qwen3.5"), default="llama")
    p.add_argument("--hidden", type=int, default=5120)
    p.add_argument("--mlp", type=int, default=17408)
    p.add_argument("--layers", type=int, default=4)
    p.add_argument("--heads", type=int, default=40)
    p.add_argument("--kv-heads", type=int, default=8)
    p.add_argument("--vocabulary", type=int, default=1024)
    p.add_argument("--bits", type=int, choices=(2, 3, 4), default=3)
    p.add_argument("--axis", type=int, choices=(0, 1), default=0)
    p.add_argument("--head-dim", type=int, help="default: --hidden over --heads")
    args = p.parse_args()
    fault = find_fault(args)
    if fault:
        p.exit(2, f"{p.prog}: {fault}\n")
    return args


def find_fault(args):
    """What is wrong with the sizes, or None; fills in the head's."""
    for name, most in (("hidden", 1 << 20), ("mlp", 1 << 22), ("layers", 512), ("heads", 1 << 16),
                       ("kv_heads", 1 << 16), ("vocabulary", 1 << 24)):
        n = getattr(args, name)
        if not 1 <= n <= most:
            return f"--{name.replace('_', '-')}: expected 1 to {most}, found {n}"
    for name in ("hidden", "mlp"):
        if getattr(args, name) % 256:
            return f"--{name}: {getattr(args, name)} is no multiple of 256"
    if args.heads % args.kv_heads:
        return f"--kv-heads: {args.kv_heads} does not divide the {args.heads} heads"
    if args.head_dim is None:
        if args.hidden % args.heads:
            return (f"--heads: {args.heads} does not divide the hidden size {args.hidden}: "
                    "give --head-dim")
        args.head_dim = args.hidden // args.heads
    if not 2 <= args.head_dim <= 4096 or args.head_dim % 2:
        return f"--head-dim: expected an even number from 2 to 4096, found {args.head_dim}"
    if args.heads * args.head_dim > 1 << 20:
        return f"--heads: {args.heads} of {args.head_dim} numbers each are more than {1 << 20}"
    for name in ("heads", "kv_heads")[:2 if args.axis == 0 else 1]:
        n = getattr(args, name) * args.head_dim
        if n % 256:
            return (f"--{name.replace('_', '-')} times the head's size: "
                    f"{n} is no multiple of 256")
    if os.path.lexists(args.out):
        return f"{args.out}: is there already"
    return None


def write_packed(tensors, modules, name, out, inputs, args):
    """A trellis matrix in blocks of 256: widths are multiples of that."""
    rows, cols = (inputs, out) if args.axis == 0 else (out, inputs)
    words = cols // 32 * args.bits
    tensors[name + ".weight"] = ("U32", [rows, words], 4 * rows * words, None)
    tensors[name + ".scales"] = ("F16", [rows], 2 * rows, FP16_SCALE)
    modules[name] = {"group_size": 256, "bits": args.bits, "mode": "trellis",
                     "trellis": {
                         "L": 12, "code": "1mad", "axis": args.axis,
                         "input_rotation": {"kind": "hadamard", "block": 256, "seed": inputs}}}


def write_ones(tensors, name, n):
    tensors[name] = ("BF16", [n], 2 * n, BF16_ONE)


def write_small(tensors, name, shape):
    count = 1
    for n in shape:
        count *= n
    tensors[name] = ("BF16", shape, 2 * count, BF16_SMALL)


def write_qwen35(tensors, layer, i, args):
    """What a layer of Qwen3.5 has beside its linear layers and norms."""
    if not is_delta(i):
        for name in ("q_norm", "k_norm"):
            write_ones(tensors, f"{layer}self_attn.{name}.weight", args.head_dim)
        return
    for name in ("in_proj_a", "in_proj_b"):
        write_small(tensors, f"{layer}linear_attn.{name}.weight", [48, args.hidden])
    write_small(tensors, layer + "linear_attn.conv1d.weight", [DELTA_CHANNELS, 1, 4])
    for name in ("A_log", "dt_bias"):
        write_ones(tensors, f"{layer}linear_attn.{name}", 48)
    write_ones(tensors, layer + "linear_attn.norm.weight", 128)


def describe(args):
    """Tensors as name: (type, shape, bytes, number to fill with or None for random bits)."""
    tensors, modules = {}, {}
    head = args.head_dim
    # 8-bit groups of 64: random codes, scale and bias such that weights are small.
    groups = args.vocabulary * args.hidden // 64
    shape = [args.vocabulary, args.hidden // 64]
    tensors["model.embed_tokens.weight"] = (
        "U32", [args.vocabulary, args.hidden // 4], args.vocabulary * args.hidden, None)
    tensors["model.embed_tokens.scales"] = ("F16", shape, 2 * groups, struct.pack("<e", 1e-3))
    tensors["model.embed_tokens.biases"] = ("F16", shape, 2 * groups, struct.pack("<e", -0.128))
    for i in range(args.layers):
        layer = f"model.layers.{i}."
        llama = args.family == "llama"
        for name, out, inputs in (linear_layers(args, head) if llama
                                  else qwen35_layers(args, head, i)):
            write_packed(tensors, modules, layer + name, out, inputs, args)
        if not llama:
            write_qwen35(tensors, layer, i, args)
        write_ones(tensors, layer + "input_layernorm.weight", args.hidden)
        write_ones(tensors, layer + "post_attention_layernorm.weight", args.hidden)
    write_ones(tensors, "model.norm.weight", args.hidden)
    return tensors, modules


def config(args, modules):
    quantization = {"group_size": 64, "bits": 8, "mode": "affine", **modules}
    base = llama_config if args.family == "llama" else qwen35_config
    return {**base(args, args.head_dim), "quantization": quantization,
            "quantization_config": quantization}


def write(path, tensors):
    header, at = {}, 0
    for name, (kind, shape, size, _) in tensors.items():
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    pool = memoryview(os.urandom(min(POOL, max(size for _, _, size, _ in tensors.values()))))
    start = 0
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, _, size, number in tensors.values():
            if number is not None:
                f.write(number * (size // len(number)))
                continue
            while size: # the same random bits again and again, at no fixed distance
                part = min(PIECE, size, len(pool) - start)
                f.write(pool[start:start + part])
                size -= part
                start = (start + part + 52) % len(pool)


def main():
    args = parse()
    tensors, modules = describe(args)
    try:
        os.makedirs(args.out)
        write(os.path.join(args.out, "model.safetensors"), tensors)
        with open(os.path.join(args.out, "config.json"), "w", encoding="utf-8") as f:
            json.dump(config(args, modules), f, indent=1)
    except OSError as e:
        sys.exit(f"random_model.py: {args.out}: {e.strerror}")


if __name__ == "__main__":
    main()
