#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs the examples on a tiny model, to which a tokenizer of single bytes is added.
set -euo pipefail

golden=$PLEACH_SOURCE/tests/golden
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r "$golden/checkpoints/llama-tied" "$work/model"
chmod -R u+w "$work/model"
cp "$golden/tokenizers/bytes.json" "$work/model/tokenizer.json"
head -c 1500 "$PLEACH_SOURCE/bench/eval.txt" >"$work/text"

example() { "$PLEACH_BUILD/example_$1" "${@:2}"; }
expect() { # expect PATTERN FILE
    grep -Eq "$1" "$2" || { echo "expected /$1/, found:"; cat "$2"; exit 1; }
}

# The error of Gaussian rows is close to what the code reaches: .0747, .0193, .0050.
example encode_matrix 2 | tee "$work/out"; expect 'relative error 0\.07[0-9]+' "$work/out"
example encode_matrix 3 | tee "$work/out"; expect 'relative error 0\.0(19|20)' "$work/out"
example encode_matrix 4 | tee "$work/out"; expect 'relative error 0\.005' "$work/out"
example encode_matrix 5 2>&1 | tee "$work/out" || true; expect 'bits is 5' "$work/out"

example quantize_model "$work/model" "$work/packed" 4 2>/dev/null | tee "$work/out"
expect 'bits a weight in all, 4\.[0-9]+ in the block matrices' "$work/out"
example inspect "$work/packed" >"$work/out"
expect 'model.layers.0.mlp.down_proj.* trellis .*k=4' "$work/out"
expect 'model.embed_tokens.* affine' "$work/out"
example generate "$work/packed" "In the beginning" 8 >"$work/out"
expect '^16 \+ 8 tokens' "$work/out"
example perplexity "$work/packed" "$work/text" "$work/model" | tee "$work/out"
expect '^KL 0\.[0-9]+ nats' "$work/out"
