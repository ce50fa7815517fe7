#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The folders that dequantize writes, loaded by transformers: its logits against the program's, of
# the folder and of the packed model it came from. Skipped without the packages.
. "$(dirname "$0")/common.sh"
python=${PLEACH_PYTHON:-python3}
if ! "$python" -c 'import torch, transformers, safetensors' 2>/dev/null; then
    echo "skipped: no Python with the torch and transformers packages (PLEACH_PYTHON)"
    exit 77
fi
compared=()
for name in llama-tied llama-rope3 qwen2-bias qwen3-qknorm mistral-swa; do
    ids=$golden/checkpoints/$name/golden.safetensors
    expect 0 '' "$PLEACH" quantize "$golden/checkpoints/$name" "$work/$name-packed" --bits 4 \
        --calib none
    expect 0 '' "$PLEACH" dequantize "$work/$name-packed" "$work/$name"
    for model in "$name" "$name-packed"; do
        expect 0 '' "$PLEACH" logits "$work/$model" --ids "$ids" -o "$work/$model.logits" --arith f32
    done
    compared+=("$work/$name" "$ids" "$work/$name.logits" "$work/$name-packed.logits")
done
"$python" "$PLEACH_SOURCE/tests/cli/compare_transformers.py" "${compared[@]}" 2>"$err" ||
    fault "transformers: $(tail -n 1 "$err")"
finish
