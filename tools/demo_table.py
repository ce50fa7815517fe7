# SPDX-License-Identifier: Apache-2.0
"""Prints the demo's table from demo/eval-*.json and demo/inspect-*.json."""
import json

row = "{:<24} {:>9} {:>10} {:>10} {:>8} {:>8} {:>11}".format


def load(name):
    with open(f"demo/{name}.json", encoding="utf-8") as f:
        return json.load(f)


def sizes(name):
    t = load(f"inspect-{name}")["totals"]
    return (
        f"{t['file_bytes'] / 1e6:.1f} MB",
        f"{8 * t['block_bytes'] / t['block_weights']:.3f}",
        f"{8 * t['bytes'] / t['weights']:.3f}",
    )


print()
print(row("", "", "bits per", "weight", "", "", ""))
print(row("SmolLM2-135M-Instruct", "size", "blocks", "all", "KL", "top-1", "perplexity"))
print(row("original (GGUF, Q4_1)", *sizes("original"), "", "", f"{load('eval-4')['teacher_perplexity']:.3f}"))
for bits in (4, 3):
    e = load(f"eval-{bits}")
    top = f"{100 * e['same_top']:.1f} %"
    print(row(f"Pleach, {bits} bits", *sizes(bits), f"{e['kl']:.4f}", top, f"{e['perplexity']:.3f}"))
