#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The TurboQuant vectors of this folder: what each tensor is, and a check that it is that.

  make_turboquant.py             recomputes every derived tensor of the files here, compares bits
  make_turboquant.py OUT D SEED  makes the random file: groups of every size and distance from zero

A file turboquant_*.safetensors holds, for 24 tokens of one head (docs/format.md, "The packed
attention cache"):
  k, v                                  what was coded, bf16
  key_codes, key_scales, key_zeros      the packed keys
  value_codes, value_scales             the packed values
  key_decoded, value_decoded            decoded to bf16, values un-rotated
  value_rotated                         decoded to bf16, values left rotated
where the metadata's decoded_group, if there is one, is the group that the decoded tensors were made
with: D = 112 was read as 4 groups of 28 though coded as 32 + 32 + 32 + 16, which loses the numbers
but not the vector's use: a decoder told of 28 must give these bits.
A file random_*.safetensors holds x, f32, and of each type its codes, scales and for keys zeros by
the plain formulas, zeros in f32: where fp16 holds scale and zero, codes must agree. Needs numpy
alone.
"""
import json
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from safetensors_file import read, write

HERE = pathlib.Path(__file__).resolve().parent
TABLES = json.loads((HERE.parents[2] / "tools/turboquant_tables.json").read_text())
F = np.float32


def to_bf16(x):
    u = np.ascontiguousarray(x, F).view(np.uint32)
    return (u + 0x7FFF + (u >> 16 & 1) >> 16).astype(np.uint16)


def from_bf16(h):
    return (h.astype(np.uint32) << 16).view(F)


def groups(d):
    return [slice(i, min(i + 32, d)) for i in range(0, d, 32)]


def bit_string(codes, bits):
    """Codes of a token one after another, lowest bit first."""
    planes = (codes.astype(np.int64)[..., None] >> np.arange(bits) & 1).astype(np.uint8)
    return np.packbits(planes.reshape(len(codes), -1), axis=-1, bitorder="little")


def keys(x, bits):
    """f32 [n, D] -> codes, scales f32, zeros f32."""
    m = F(254 if bits == 8 else (1 << bits) - 1)
    low, high = (F(-127), F(127)) if bits == 8 else (F(0), m)
    codes, scales, zeros = np.zeros(x.shape, np.int64), [], []
    for g in groups(x.shape[1]):
        least, most = x[:, g].min(1, keepdims=True), x[:, g].max(1, keepdims=True)
        scale = (most - least) / m
        step = scale + F(1e-8)
        zero = np.rint((most + least) / (F(2) * step) if bits == 8 else least / step)
        codes[:, g] = np.nan_to_num(np.clip(np.rint(x[:, g] / step - zero), low, high))
        scales.append(scale)
        zeros.append(zero)
    return codes, np.hstack(scales), np.hstack(zeros)


def blocks(d):
    while d:
        b = 1 << d.bit_length() - 1
        yield b
        d -= b


def transform(x):
    """Hadamard transforms of consecutive blocks, f32, butterflies from stride 1 up."""
    x, at = x.copy(), 0
    for b in blocks(x.shape[1]):
        y = x[:, at:at + b]
        for stride in (1 << i for i in range(b.bit_length() - 1)):
            pairs = y.reshape(len(y), -1, 2, stride)
            y = np.stack([pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]],
                         2).reshape(y.shape)
        x[:, at:at + b] = y * F(1 / np.sqrt(b))
        at += b
    return x


def signs(d):
    size = min(int(s) for s in TABLES["signs"] if int(s) >= d)
    return np.array(TABLES["signs"][str(size)][:d], F)


def sum_lanes(x):
    """Sum over the last axis in eight lanes, lanes pairwise."""
    s = x[:, :8].copy()
    for i in range(8, x.shape[1], 8):
        s += x[:, i:i + 8]
    while s.shape[1] > 1:
        s = s[:, 0::2] + s[:, 1::2]
    return s


def values(x, bits):
    r = transform(x * signs(x.shape[1]))
    boundaries = np.array(TABLES["boundaries"][str(bits)], F)
    codes, scales = np.zeros(x.shape, np.int64), []
    for g in groups(x.shape[1]):
        scale = np.sqrt(sum_lanes(r[:, g] * r[:, g]) / F(g.stop - g.start))
        codes[:, g] = np.searchsorted(boundaries, r[:, g] / (scale + F(1e-8)), side="left")
        scales.append(scale)
    return codes, np.hstack(scales)


def spread(a, d, group):
    return np.repeat(a.astype(F), group, 1)[:, :d]


def derive(t, meta):
    """Every tensor but k and v, as stored."""
    d, kb, vb = (int(meta[name]) for name in ("head_dim", "k_bits", "v_bits"))
    decoded = int(meta.get("decoded_group", meta["group"]))
    kc, ks, kz = keys(from_bf16(t["k"]), kb)
    vc, vs = values(from_bf16(t["v"]), vb)
    ks, kz, vs = (a.astype(np.float16) for a in (ks, kz, vs))
    rotated = np.array(TABLES["centroids"][str(vb)], F)[vc] * spread(vs, d, decoded)
    return {"key_codes": bit_string(kc, kb), "key_scales": ks, "key_zeros": kz,
            "value_codes": bit_string(vc, vb), "value_scales": vs,
            "key_decoded": to_bf16((kc.astype(F) + spread(kz, d, decoded)) *
                                   spread(ks, d, decoded)),
            "value_rotated": to_bf16(rotated),
            "value_decoded": to_bf16(transform(rotated) * signs(d))}


def verify(path):
    tensors, meta = read(path)
    if "random" in path.name:
        wanted = {name: a for name, (_, a) in random_tensors(tensors["x"]).items()}
    else:
        wanted = derive(tensors, meta)
    bad = [name for name, a in wanted.items() if a.tobytes() != tensors[name].tobytes()]
    print(path.name, "differs in " + ", ".join(bad) if bad else "agrees")
    return not bad


def random_numbers(d, seed):
    """Groups of spreads from 1e-6 to 1e5 about offsets from none to 1e5 spreads; some bf16."""
    rng = np.random.default_rng(seed)
    x = np.zeros((160, d), F)
    for token in range(len(x)):
        for g in groups(d):
            spread_ = 10 ** rng.uniform(-6, 5) if token % 2 else 10 ** rng.uniform(-2, 2)
            offset = rng.choice([0, 1, 30, 10 ** rng.uniform(0, 5)]) * rng.choice([-1, 1])
            x[token, g] = spread_ * (rng.standard_normal(g.stop - g.start) + offset)
    x[::4] = from_bf16(to_bf16(x[::4]))
    return x


def random_tensors(x):
    tensors = {"x": ("F32", x)}
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        for bits in (2, 4, 5, 8):
            codes, scales, zeros = keys(x, bits)
            tensors[f"k{bits}_codes"] = "U8", bit_string(codes, bits)
            tensors[f"k{bits}_scales"] = "F16", scales.astype(np.float16)
            tensors[f"k{bits}_zeros"] = "F32", zeros
        for bits in (2, 3, 4, 5, 8):
            codes, scales = values(x, bits)
            tensors[f"v{bits}_codes"] = "U8", bit_string(codes, bits)
            tensors[f"v{bits}_scales"] = "F16", scales.astype(np.float16)
    return tensors


if len(sys.argv) > 1:
    x = random_numbers(int(sys.argv[2]), int(sys.argv[3]))
    write(pathlib.Path(sys.argv[1]), random_tensors(x), {"head_dim": sys.argv[2]})
else:
    sys.exit(not all([verify(p) for p in sorted(HERE.glob("*.safetensors"))]))
