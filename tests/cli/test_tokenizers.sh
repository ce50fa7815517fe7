#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The real model's tokenizer against the `tokenizers` package: the ids that the program prints, and
# the folder that a GGUF tokenizer is written as. Skipped without the model or the package.
set -eu
if [ -z "${PLEACH_SMOLLM2:-}" ] || [ ! -f "$PLEACH_SMOLLM2" ]; then
    echo "skipped: PLEACH_SMOLLM2 does not name the model"
    exit 77
fi
python=${PLEACH_PYTHON:-python3}
if ! "$python" -c 'import tokenizers, gguf' 2>/dev/null; then
    echo "skipped: no Python with the tokenizers and gguf packages (PLEACH_PYTHON)"
    exit 77
fi
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
PLEACH_TOKENIZER_OUT=$out "$PLEACH_BUILD/test_tokenizer_gguf" >"$out/log" 2>&1 ||
    { cat "$out/log"; exit 1; }
"$python" "$PLEACH_SOURCE/tests/cli/compare_tokenizers.py" "$PLEACH" "$PLEACH_SMOLLM2" "$out" \
    "$PLEACH_SOURCE/tests/golden/text/torture.txt"
