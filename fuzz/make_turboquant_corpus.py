#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the first inputs of fuzz/corpus/turboquant: four bytes of shape, then f32 numbers."""
import math
import pathlib
import random
import struct

FOLDER = pathlib.Path(__file__).parent / "corpus" / "turboquant"
FOLDER.mkdir(parents=True, exist_ok=True)
random.seed(1)
normal = [random.gauss(0, 1) for _ in range(512)]
INPUTS = {
    "normal": normal,
    "constant": [100.0] * 32 + [-7.0] * 32 + [1e-8] * 32 + [0.0] * 32,
    "outlier": [6e4] + normal[:127],
    "far": [1e4 + 0.1 * x for x in normal[:128]],
    "huge": [3e38 * (-1) ** i for i in range(32)] + [1e9 + 1e7 * x for x in normal[:32]],
    "tiny": [1e-40 * x for x in normal[:32]] + [1e-6 * x for x in normal[:48]],
    "not-finite": normal[:40] + [math.nan] + normal[:30] + [math.inf] + normal[:56],
}
for i, (name, numbers) in enumerate(INPUTS.items()):
    for shape in range(4):
        head = bytes([(i + 3 * shape) % 8, (3 + shape) % 4, (1 + shape + i) % 5, 37 * i + shape & 31])
        (FOLDER / f"{name}-{shape}").write_bytes(head + struct.pack(f"<{len(numbers)}f", *numbers))
