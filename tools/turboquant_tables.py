#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the constants of TurboQuant as a C table.

    tools/turboquant_tables.py tools/turboquant_tables.json > src/codec/turboquant_tables.c

The constants cannot be computed again: the signs were drawn once, the centroids were fitted by
Lloyd and Max's iteration to samples and rounded, and caches written elsewhere rely on them.
Boundaries are the centroids' midpoints, except at 3 bits, where decimals were rounded."""
import json
import struct
import sys

HEAD = '''/* SPDX-License-Identifier: Apache-2.0
 *
 * Constants of TurboQuant: written by tools/turboquant_tables.py from turboquant_tables.json. */
#include "turboquant.h"

#include "base/compiler.h"

/* clang-format off */
'''


def exact(x):
    """x as the shortest decimal of an f32 that reads back as x."""
    for digits in range(1, 10):
        text = f"{x:.{digits}g}"
        if struct.pack("<f", float(text)) == struct.pack("<f", x):
            break
    assert struct.unpack("<f", struct.pack("<f", x))[0] == x, x
    return text if "." in text or "e" in text else text + ".0"


def array(name, items, per_line):
    lines = [", ".join(items[i:i + per_line]) for i in range(0, len(items), per_line)]
    body = ",\n".join("    " + line for line in lines)
    print(f"\nstatic const float {name}[{len(items)}] PL_ALIGNED(64) = {{\n{body}}};")


def lookup(function, table, key, keys):
    print(f"\nconst float *{function}(uint32_t {key})\n{{\n    switch ({key}) {{")
    for k in keys[:-1]:
        print(f"    case {k}:\n        return {table}{k};")
    print(f"    default:\n        return {table}{keys[-1]};\n    }}\n}}")


def main():
    tables = json.load(open(sys.argv[1]))
    print(HEAD, end="")
    dims = sorted(map(int, tables["signs"]))
    bits = sorted(map(int, tables["centroids"]))
    for d in dims:
        array(f"signs{d}", [f"{s:d}" for s in tables["signs"][str(d)]], 24)
    for name in "centroids", "boundaries":
        for b in bits:
            values = tables[name][str(b)]
            assert values == sorted(values) and len(values) == 2**b - (name == "boundaries")
            array(f"{name}{b}", [exact(v) + "f" for v in values], 6)
    print("\n/* The first entries of the next size serve the sizes between. */")
    print("const float *pl_turboquant_signs(uint32_t dim)\n{")
    for d in dims[:-1]:
        print(f"    if (dim <= {d}) return signs{d};")
    print(f"    return signs{dims[-1]};\n}}")
    lookup("pl_turboquant_centroids", "centroids", "bits", bits)
    lookup("pl_turboquant_boundaries", "boundaries", "bits", bits)


main()
