#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws what `pleach bench kernels --json` measured as a roofline.

    pleach bench kernels --json > kernels.json
    bench/roofline.py kernels.json roofline.svg

Every line is one arithmetic at one number of bits, from M = 1 on the left to M = 512 on the right: multiply-adds per
second over multiply-adds per byte of weights read. The slanted roof is the memory's reading speed, the flat one what
OpenBLAS does with f32 weights; both were measured in the same run, on one thread. Needs matplotlib.
"""
import json
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

COLOURS = {"int16": "C0", "int16x2": "C1", "f32": "C2", "bf16": "C3", "int8": "C4"}
MARKERS = {2: "v", 3: "s", 4: "o"}


def curves(figures, axis):
    """{(arithmetic, bits): [(multiply-adds per byte, multiply-adds per second)]} of the wide shape, one thread."""
    found = {}
    for f in figures:
        if f["what"] != "product" or f["threads"] != 1 or f["axis"] != axis or f["state_bits"] != 12:
            continue
        if f["out"] < f["in"]:
            continue
        found.setdefault((f["arith"], f["bits"]), []).append((f["M"] * 8 / f["bits"], f["value"]))
    return {key: sorted(points) for key, points in found.items()}


def draw(report, path):
    figures = report["figures"]
    memory = report["memory_bytes_per_second"][0]
    dense = [f for f in figures if f["what"] == "dense bf16" and f["threads"] == 1]
    sgemm = max((f["value"] for f in figures if f["what"] == "OpenBLAS sgemm"), default=0)
    picture, plots = plt.subplots(1, 2, figsize=(13, 6), sharey=True)
    for axis, plot in enumerate(plots):
        intensities = [0.4, 2048]
        plot.plot(intensities, [memory * i for i in intensities], color="0.5", lw=1)
        plot.text(0.45, memory * 0.5, f"memory, {memory / 1e9:.0f} GB/s", rotation=38, color="0.4")
        if sgemm:
            plot.axhline(sgemm, color="0.5", lw=1, ls="--")
            plot.text(0.45, sgemm * 1.05, "OpenBLAS sgemm, M = 512", color="0.4")
        for (arith, bits), points in sorted(curves(figures, axis).items()):
            plot.plot(*zip(*points), color=COLOURS.get(arith, "k"), marker=MARKERS[bits], ms=4, lw=1,
                      label=f"{arith}, {bits} bits")
        plot.plot([f["M"] / 2 for f in dense], [f["value"] for f in dense], color="k", marker="x", lw=1,
                  label="dense bf16")
        plot.set(xscale="log", yscale="log", xlim=intensities, ylim=(1e9, 4e11), title=f"axis {axis}",
                 xlabel="multiply-adds per byte of weights")
        plot.grid(True, which="both", lw=0.3)
    plots[0].set_ylabel("multiply-adds/s, one thread")
    plots[1].legend(fontsize=7, ncol=2, loc="lower right")
    picture.suptitle(f"17408 x 5120, cpu level {report['cpu']}, weights from memory")
    picture.tight_layout()
    picture.savefig(path)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(f"usage: {sys.argv[0]} KERNELS.json PICTURE\n"
                 "expected a report of pleach bench kernels --json and a file to draw, such as roofline.svg")
    with open(sys.argv[1], encoding="utf-8") as file:
        draw(json.load(file), sys.argv[2])
