#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes an unpacked bf16 model of any size with random normal weights (norms are ones): as long to
quantise as a real one, and of no other use. Needs nothing but Python.

    python3 bench/random_checkpoint.py OUT --hidden 4096 --mlp 14336 --layers 2
    pleach quantize OUT PACKED --calib none
"""
import argparse
import json
import os
import random
import struct
import sys

from random_shapes import linear_layers, llama_config

BF16_ONE = struct.pack("<H", 0x3F80)
PIECE = 1 << 20  # numbers that are drawn; tensors are made of them from random places on


def parse():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    p.add_argument("out", help="folder to make")
    p.add_argument("--hidden", type=int, default=4096)
    p.add_argument("--mlp", type=int, default=14336)
    p.add_argument("--layers", type=int, default=2)
    p.add_argument("--heads", type=int, default=32)
    p.add_argument("--kv-heads", type=int, default=8)
    p.add_argument("--vocabulary", type=int, default=1024)
    return p.parse_args()


def describe(args):
    """Tensors as name: shape."""
    head = args.hidden // args.heads
    tensors = {"model.embed_tokens.weight": [args.vocabulary, args.hidden]}
    for i in range(args.layers):
        layer = f"model.layers.{i}."
        for name, out, inputs in linear_layers(args, head):
            tensors[layer + name + ".weight"] = [out, inputs]
        tensors[layer + "input_layernorm.weight"] = [args.hidden]
        tensors[layer + "post_attention_layernorm.weight"] = [args.hidden]
    tensors["model.norm.weight"] = [args.hidden]
    return tensors


def config(args):
    return llama_config(args, args.hidden // args.heads)


def normal_numbers():
    """PIECE numbers of bf16, as bytes."""
    numbers = struct.pack(f"<{PIECE}f", *(random.gauss(0, 0.02) for _ in range(PIECE)))
    high = bytearray(2 * PIECE)
    high[0::2], high[1::2] = numbers[2::4], numbers[3::4]
    return memoryview(high)


def write(path, tensors):
    header, at = {}, 0
    for name, shape in tensors.items():
        size = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    numbers = normal_numbers()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for entry in header.values():
            left = entry["data_offsets"][1] - entry["data_offsets"][0]
            if len(entry["shape"]) == 1:
                f.write(BF16_ONE * entry["shape"][0])
                continue
            while left:
                start = 2 * random.randrange(PIECE // 2)
                left -= f.write(numbers[start:start + min(left, 2 * PIECE - start)])


def main():
    args = parse()
    try:
        os.makedirs(args.out)
        write(os.path.join(args.out, "model.safetensors"), describe(args))
        with open(os.path.join(args.out, "config.json"), "w", encoding="utf-8") as f:
            json.dump(config(args), f, indent=1)
    except OSError as e:
        sys.exit(f"random_checkpoint.py: {args.out}: {e.strerror}")


if __name__ == "__main__":
    main()
