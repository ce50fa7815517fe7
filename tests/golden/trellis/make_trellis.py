#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The trellis vectors of this folder: what each tensor is, and a check that it is that.

  make_trellis.py            recomputes every derived tensor of the files here and compares bits
  make_trellis.py OUT.safetensors K L T AXIS ROWS COLS [SEED]    makes another file of the kind

A file holds, for a matrix of ROWS stored rows of COLS coded numbers (docs/format.md):
  codes, scales   the coded matrix as stored; block_interleave "2" is the interleaved layout
  w               what was coded (absent where the codes are random words)
  expand, decode  the two contracts' numbers: bf16, f32
  x               nine activation vectors, bf16
  y_expand, y_decode   the products with each contract's numbers, f64
Codes are the plain search's: f32 metric, ties to the lowest predecessor, QTIP Algorithm 4, scale
RMS(row)/RMS(code). Needs numpy alone.
"""
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from safetensors_file import read, write

DIVISOR = np.float32(147.800537109375)


def y_of(state):
    x = (np.asarray(state, np.uint64) * 34038481 + 76625530) & 0xFFFFFFFF
    return sum((x >> s & 255).astype(np.int32) for s in (0, 8, 16, 24)) - 510


def states_of(words, k, L, T):
    """[..., T*k/32] words -> [..., T] states: windows of the block's bits, read as a ring."""
    bits = np.unpackbits(np.ascontiguousarray(words, "<u4").view(np.uint8), axis=-1,
                         bitorder="little")
    starts = (T - 1 - np.arange(T)) * k
    ring = bits[..., (starts[:, None] + np.arange(L)) % (T * k)]
    return (ring.astype(np.uint32) << np.arange(L, dtype=np.uint32)).sum(-1, dtype=np.uint32)


def words_of(states, k):
    """[..., T] states -> [..., T*k/32] words: the low k bits of the last state come first."""
    symbols = states[..., ::-1, None] >> np.arange(k, dtype=np.uint32) & 1
    bits = symbols.astype(np.uint8).reshape(*states.shape[:-1], -1)
    return np.packbits(bits, axis=-1, bitorder="little").view("<u4")


def to_bf16(a):
    """f32 -> bf16 bits, to nearest even; no NaN here."""
    u = np.ascontiguousarray(a, np.float32).view(np.uint32)
    return ((u + 0x7FFF + (u >> 16 & 1)) >> 16).astype(np.uint16)


def from_bf16(h):
    return (h.astype(np.uint32) << 16).view(np.float32)


def plain_codes(codes):
    """The interleaved layout [cols/512][rows][48] as [rows][cols*k/32]."""
    return codes if codes.ndim == 2 else codes.transpose(1, 0, 2).reshape(codes.shape[1], -1)


def search(x, k, L, pin=None):
    """[B, T] numbers -> [B, T] states of the path of least squared error; with pin [B] the one that
    starts after and ends in that group of low L-k bits."""
    B, T = x.shape
    groups = 1 << (L - k)
    value = (y_of(np.arange(1 << L)).astype(np.float32) / DIVISOR)[None]
    least = np.zeros((B, groups), np.float32)
    if pin is not None:
        least[:] = np.inf
        least[np.arange(B), pin] = 0
    best = np.zeros((T, B, groups), np.uint32)
    for t in range(T):
        cost = np.repeat(least, 1 << k, 1) + (x[:, t:t + 1] - value) ** 2
        best[t] = cost.reshape(B, 1 << k, groups).argmin(1)
        least = cost.reshape(B, 1 << k, groups).min(1)
    state = cost.argmin(1).astype(np.uint32)
    if pin is not None:
        state = best[T - 1][np.arange(B), pin] << (L - k) | pin
    states = np.zeros((B, T), np.uint32)
    for t in range(T - 1, -1, -1):
        states[:, t] = state
        group = state >> k
        state = best[t - 1][np.arange(B), group] << (L - k) | group
    return states


def encode(w, k, L, T):
    rows = len(w)
    code = y_of(np.arange(1 << L)).astype(np.float32) / DIVISOR
    rms = np.sqrt((w.astype(np.float64) ** 2).mean(1))
    scales = (rms / np.sqrt((code.astype(np.float64) ** 2).mean())).astype(np.float16)
    x = (w / scales.astype(np.float32)[:, None]).reshape(-1, T)
    free = search(np.roll(x, -(T // 2), 1), k, L)
    states = search(x, k, L, free[:, T - T // 2] >> k)
    return words_of(states, k).reshape(rows, -1), scales


def derive(codes, scales, x, k, L, T, axis):
    plain = plain_codes(codes)
    rows = len(plain)
    y = y_of(states_of(plain.reshape(rows, -1, T * k // 32), k, L, T)).reshape(rows, -1)
    y, s = y.astype(np.float32), scales.astype(np.float32)[:, None]
    expand, decode = to_bf16(y / DIVISOR * s), y * (np.float32(1) / DIVISOR) * s
    product = []
    for m in (from_bf16(expand), decode):
        m = m.astype(np.float64)
        product.append(from_bf16(x).astype(np.float64) @ (m if axis == 0 else m.T))
    return {"expand": expand, "decode": decode, "y_expand": product[0], "y_decode": product[1]}


def check(path):
    t, meta = read(path)
    k, L, T, axis = (int(meta[n]) for n in ("k", "L", "T", "axis"))
    bad = []
    for name, array in derive(t["codes"], t["scales"], t["x"], k, L, T, axis).items():
        same = np.allclose(t[name], array, 1e-12, 1e-12) if name[0] == "y" else \
            t[name].tobytes() == array.tobytes()
        bad += [] if same else [name]
    if "w" in t:
        codes, scales = encode(t["w"], k, L, T)
        if scales.tobytes() != t["scales"].tobytes(): bad.append("scales")
        if not np.array_equal(codes, plain_codes(t["codes"])): bad.append("codes")
    print(path.name, "ok" if not bad else "differs: " + ", ".join(bad))
    return not bad


def make(path, k, L, T, axis, rows, cols, seed=1):
    random = np.random.default_rng(seed)
    w = random.standard_normal((rows, cols)).astype(np.float32)
    x = to_bf16(random.standard_normal((9, rows if axis == 0 else cols)))
    codes, scales = encode(w, k, L, T)
    d = derive(codes, scales, x, k, L, T, axis)
    meta = {"k": k, "L": L, "T": T, "axis": axis, "rows": rows, "cols": cols, "code": "1mad",
            "block_interleave": 0}
    write(path, {"w": ("F32", w), "codes": ("U32", codes), "scales": ("F16", scales),
                 "x": ("BF16", x), "expand": ("BF16", d["expand"]), "decode": ("F32", d["decode"]),
                 "y_expand": ("F64", d["y_expand"]), "y_decode": ("F64", d["y_decode"])},
          {n: str(v) for n, v in meta.items()})


if __name__ == "__main__":
    if len(sys.argv) > 1:
        make(pathlib.Path(sys.argv[1]), *map(int, sys.argv[2:]))
    else:
        here = pathlib.Path(__file__).parent
        sys.exit(not all([check(p) for p in sorted(here.glob("*.safetensors"))]))
