#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# GGUF files of Gemma 3 and of a mixture of experts, written by the gguf package: what they become as
# folders is the checkpoint they were made from. Skipped without the package.
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
expect 0 '' "$PLEACH" inspect "$golden/checkpoints/qwen3-moe"
expect_output 'of which a token'
expect 1 'folding is not supported in gemma3_text models' \
    "$PLEACH" quantize "$golden/checkpoints/gemma3" "$work/out" --calib none --rotate fold
finish
