#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The demo: a real model fetched, packed to 4 and to 3 bits, measured against itself, and asked
# something. Both rates share one calibration, on less text than by default and without a backward
# pass, for the sake of time. Results stay in demo/; they are made again only when the program is
# newer.
set -euo pipefail
cd "$(dirname "$0")/.."

pleach=build/pleach
model=.cache/SmolLM2-135M-Instruct.Q4_1.gguf
statistics=.cache/demo.statistics
calibration=(--calib self --calib-tokens 8192 --plain-hessian --statistics "$statistics")
prompts=("What is the capital of France?" "Explain what photosynthesis is.")

tools/setup.sh build python
make --no-print-directory all >/dev/null
tools/fetch_model.sh
mkdir -p demo
[ "$statistics" -nt "$pleach" ] || rm -rf "$statistics"
"$pleach" inspect "$model" --json >demo/inspect-original.json

for bits in 4 3; do
    packed=demo/SmolLM2-135M-$bits-bit
    if [ ! -e "$packed" ] || [ "$pleach" -nt "$packed" ]; then
        echo "== packing to $bits bits"
        "$pleach" quantize "$model" "$packed" --bits $bits --force "${calibration[@]}"
    fi
    echo "== measuring $bits bits against the original"
    "$pleach" eval "$packed" --teacher "$model" --text bench/eval.txt --ctx 512 --chunks 16 \
        --score second-half --json >demo/eval-$bits.json
    "$pleach" inspect "$packed" --json >demo/inspect-$bits.json
done

.cache/venv/bin/python tools/demo_table.py

for prompt in "${prompts[@]}"; do
    echo
    echo "== $prompt"
    "$pleach" run demo/SmolLM2-135M-4-bit --chat -p "$prompt" -n 80
done
