#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# GGUF files of Gemma 3, of a mixture of experts and of Qwen3.5, written by the gguf package: what they
# become as folders is the checkpoint they were made from. Files of Qwen3.5 whose value heads the
# converter reordered answer as that checkpoint does. Skipped without the package.
. "$(dirname "$0")/common.sh"

python=${PLEACH_PYTHON:-python3}
if ! "$python" -c 'import gguf' 2>/dev/null; then
    echo "skipped: no Python with the gguf package (PLEACH_PYTHON)"
    exit 77
fi
script=$PLEACH_SOURCE/tests/cli/gguf_family.py
for name in gemma3 qwen3-moe; do
    source=$golden/checkpoints/$name
    "$python" "$script" make "$source" "$work/$name.gguf" || fault "$name.gguf is not made"
    expect 0 '' "$PLEACH" inspect "$work/$name.gguf"
    expect 0 '' "$PLEACH" dequantize "$work/$name.gguf" "$work/$name"
    "$python" "$script" compare "$source" "$work/$name" || fault "$name: another checkpoint"
    expect 0 '' "$PLEACH" quantize "$work/$name.gguf" "$work/$name-packed" --calib none
    expect 0 '' "$PLEACH" verify "$work/$name-packed"
done
for name in qwen35-hybrid qwen35-moe; do
    source=$golden/checkpoints/$name
    "$python" "$script" make "$source" "$work/$name.gguf" || fault "$name.gguf is not made"
    expect 0 '' "$PLEACH" inspect "$work/$name.gguf"
    expect_output 'a state of'
    tensor "$source/golden.safetensors" greedy d4 >"$work/greedy"
    expect 0 '' "$PLEACH" run "$work/$name.gguf" --ids "$source/golden.safetensors" -n 16 --print-ids \
        --ignore-end
    tr ' ' '\n' <"$out" | cmp -s - "$work/greedy" || fault "$name.gguf: $(cat "$out")"
    expect 1 'order of their own' "$PLEACH" dequantize "$work/$name.gguf" "$work/$name"
    expect 1 'order of their own' "$PLEACH" quantize "$work/$name.gguf" "$work/$name" --calib none
done
expect 0 '' "$PLEACH" inspect "$golden/checkpoints/qwen3-moe"
expect_output 'of which a token'
expect 1 'calibration of gated delta nets is not supported' \
    "$PLEACH" quantize "$golden/checkpoints/qwen35-hybrid" "$work/out" --calib "$golden/text/torture.txt"
expect 1 'folding is not supported in gemma3_text models' \
    "$PLEACH" quantize "$golden/checkpoints/gemma3" "$work/out" --calib none --rotate fold
finish
