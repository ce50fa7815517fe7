#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the first inputs of fuzz/corpus/session: session files as docs/kv.md describes them, for the
cache that fuzz_session.c makes (two layers of one head of 64 numbers, k2v3 and k8v2, the second with
a window of 64), with random pages; whole ones, and ones with a fault."""
import json
import pathlib
import random
import struct

FOLDER = pathlib.Path(__file__).parent / "corpus" / "session"
M64 = (1 << 64) - 1


def mix(z):
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & M64
    z = (z ^ z >> 27) * 0x94D049BB133111EB & M64
    return z ^ z >> 31


def checksum(data, seed):
    lane = [seed, seed ^ 0x9E3779B97F4A7C15, seed ^ M64, (seed + 0xD1B54A32D192ED03) & M64]
    whole = len(data) // 32 * 32
    for at in range(0, whole, 32):
        for k, word in enumerate(struct.unpack_from("<4Q", data, at)):
            z = (lane[k] ^ word) * 0xBF58476D1CE4E5B9 & M64
            lane[k] = z ^ z >> 29
    tail = struct.unpack("<4Q", data[whole:].ljust(32, b"\0"))
    h = len(data)
    for k in range(4):
        h = mix(h * 3 + mix(lane[k] ^ mix((tail[k] + 1) & M64)) & M64)
    return h


def page_bytes(key_bits, value_bits):
    return 64 * (8 * key_bits + 8 + 8 * value_bits + 4)


def session(n, pages, metadata=(), seal=True):
    rng = random.Random(n)
    sizes = [page_bytes(2, 3), page_bytes(8, 2)]
    strings = {"format": "pleach-session", "version": "1", "model": "0123456789abcdef",
               "arith": "int16", "kv": "k2v3,1:k8v2", "recent": "0"} | dict(metadata)
    h = 0
    for key in ("version", "model", "arith", "kv", "recent"):
        h = checksum(strings[key].encode(), h)
    ids = struct.pack(f"<{n}i", *(rng.randrange(100) for _ in range(n)))
    h = checksum(ids, h)
    header = {"__metadata__": strings,
              "ids": {"dtype": "I32", "shape": [n], "data_offsets": [0, len(ids)]}}
    data = ids
    for layer, (count, size) in enumerate(zip(pages, sizes)):
        for _ in range(count):
            page = rng.randbytes(size)
            h = checksum(page, h)
            data += page
        header[f"layers.{layer}.pages"] = {"dtype": "U8", "shape": [count, size], "data_offsets":
                                           [len(data) - count * size, len(data)]}
    strings["checksum"] = f"{h:016x}" if seal else "0" * 16
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


FILES = {
    "empty": session(0, (0, 0)),
    "one-page": session(50, (1, 1)),
    "window": session(130, (3, 2)),
    "all-pages": session(129, (3, 3)),
    "too-few-pages": session(130, (2, 2)),
    "too-many-pages": session(60, (2, 1)),
    "other-version": session(50, (1, 1), {"version": "2"}.items()),
    "other-types": session(50, (1, 1), {"kv": "k2v3"}.items()),
    "unsealed": session(50, (1, 1), seal=False),
    "too-long": session(301, (0, 0)),
}
FOLDER.mkdir(parents=True, exist_ok=True)
for name, content in FILES.items():
    (FOLDER / name).write_bytes(content)
