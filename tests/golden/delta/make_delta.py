#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A gated delta net between its projections, in float64, for tests/unit/test_delta.c. Needs numpy.

    tests/golden/delta/make_delta.py        writes delta_*.safetensors beside itself

Each token is computed twice, step by step as the paper has it and in chunks of 64 by the WY form,
and the two must agree. Sources: Gated Delta Networks (arXiv 2412.06464), eq. 10 and section 3.3;
sizes, order of q, k, v and the gates as in transformers 5.24, modeling_qwen3_5.

  qkv [n][channels]  z [n][heads * value_dim]  a, b [n][heads]      outputs of the projections
  conv [channels][taps]  A_log, dt_bias [heads]  norm [value_dim]   the layer's own numbers
  out [n][heads * value_dim]                                        what the last projection gets
  state [heads][key_dim][value_dim]  window [taps - 1][channels]    what remains
all F32.
"""
import pathlib
import sys

import numpy as np

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
import safetensors_file

EPS = 1e-6


def silu(x):
    return x / (1 + np.exp(-x))


def unit(x):
    return x / np.sqrt((x * x).sum(-1, keepdims=True) + EPS)


def convolve(x, w):
    """y[t][c] = silu(sum over j of w[c][j] x[t - taps + 1 + j][c])"""
    taps = w.shape[1]
    padded = np.concatenate([np.zeros((taps - 1, x.shape[1])), x])
    return silu(sum(padded[j:j + len(x)] * w[:, j] for j in range(taps))), padded[len(x):]


def steps(q, k, v, g, beta):
    """One head: q, k [n][dk], v [n][dv], log decay g [n], beta [n]."""
    S, out = np.zeros((k.shape[1], v.shape[1])), []
    for t in range(len(q)):
        S = np.exp(g[t]) * S
        S = S + np.outer(k[t], beta[t] * (v[t] - k[t] @ S))
        out.append(q[t] @ S)
    return np.array(out), S


def chunks(q, k, v, g, beta, size=64):
    """The same: what a chunk writes solves (I + tril(beta k k^T decay)) u = beta (v - decay k S)."""
    S, out = np.zeros((k.shape[1], v.shape[1])), []
    for at in range(0, len(q), size):
        Q, K, V, G, B = (x[at:at + size] for x in (q, k, v, g, beta))
        G = np.cumsum(G)
        decay = np.tril(np.exp(np.minimum(G[:, None] - G[None, :], 0)))
        system = np.eye(len(Q)) + np.tril(B[:, None] * (K @ K.T) * decay, -1)
        u = np.linalg.solve(system, B[:, None] * (V - np.exp(G)[:, None] * (K @ S)))
        out.append(np.exp(G)[:, None] * (Q @ S) + ((Q @ K.T) * decay) @ u)
        S = np.exp(G[-1]) * S + (K * np.exp(G[-1] - G)[:, None]).T @ u
    return np.concatenate(out), S


def make(name, n, key_heads, heads, key_dim, value_dim, taps, seed):
    rng = np.random.default_rng(seed)
    keys, values = key_heads * key_dim, heads * value_dim
    f32 = lambda x: x.astype(np.float32).astype(np.float64)
    t = {"qkv": rng.normal(size=(n, 2 * keys + values)), "z": rng.normal(size=(n, values)),
         "a": rng.normal(size=(n, heads)) * 2, "b": rng.normal(size=(n, heads)),
         "conv": rng.normal(size=(2 * keys + values, taps)) * 0.5,
         "A_log": np.log(rng.uniform(0.01, 16, heads)), "dt_bias": rng.normal(size=heads),
         "norm": 1 + 0.1 * rng.normal(size=value_dim)}
    t = {key: f32(x) for key, x in t.items()}
    mixed, window = convolve(t["qkv"], t["conv"])
    q = unit(mixed[:, :keys].reshape(n, key_heads, key_dim)) / np.sqrt(key_dim)
    k = unit(mixed[:, keys:2 * keys].reshape(n, key_heads, key_dim))
    v = mixed[:, 2 * keys:].reshape(n, heads, value_dim)
    beta = 1 / (1 + np.exp(-t["b"]))
    g = -np.exp(t["A_log"]) * np.log1p(np.exp(t["a"] + t["dt_bias"]))
    out, states = np.zeros((n, heads, value_dim)), []
    for h in range(heads):
        own = h * key_heads // heads
        one = steps(q[:, own], k[:, own], v[:, h], g[:, h], beta[:, h])
        many = chunks(q[:, own], k[:, own], v[:, h], g[:, h], beta[:, h])
        assert all(np.allclose(x, y, rtol=1e-9, atol=1e-12) for x, y in zip(one, many))
        out[:, h] = one[0]
        states.append(one[1])
    out = out / np.sqrt((out * out).mean(-1, keepdims=True) + EPS) * t["norm"]
    t["out"] = out.reshape(n, values) * silu(t["z"])
    t["state"], t["window"] = np.array(states), window
    shape = {"key_heads": key_heads, "heads": heads, "key_dim": key_dim, "value_dim": value_dim,
             "taps": taps}
    safetensors_file.write(HERE / f"delta_{name}.safetensors",
                           {key: ("F32", x) for key, x in t.items()},
                           {key: str(x) for key, x in shape.items()})


if __name__ == "__main__":
    make("grouped", 100, 2, 4, 16, 32, 4, 1)
    make("wide", 70, 1, 1, 48, 64, 3, 2)
