# SPDX-License-Identifier: Apache-2.0
#
# The examples, built against the shared library, on a tiny model.
. "$(dirname "$0")/common.sh"
: "${PLEACH_BUILD:?the build folder}"

text_model llama-tied "$work/model"
head -c 1500 "$PLEACH_SOURCE/bench/eval.txt" >"$work/text"

example() { # example NAME PATTERN ARGUMENT...: it succeeds and prints the pattern
    local program=$PLEACH_BUILD/example_$1 pattern=$2
    shift 2
    expect 0 '' "$program" "$@"
    expect_output "$pattern"
}

# On Gaussian rows the code reaches errors of .0747, .0193 and .0050.
example encode_matrix 'relative error 0\.07' 2
example encode_matrix 'relative error 0\.0[12]' 3
example encode_matrix 'relative error 0\.005' 4
"$PLEACH_BUILD/example_encode_matrix" 5 2>"$err" && fault "encode_matrix takes 5 bits"
grep -q '^encode_matrix: .*bits' "$err" || fault "encode_matrix 5 says $(cat "$err")"

example quantize_model '4\.[0-9]* in the block matrices' "$work/model" "$work/packed" 4
example inspect 'layers.0.mlp.down_proj.* trellis .*k=4' "$work/packed"
example generate '^16 + [1-8] tokens' "$work/packed" "In the beginning" 8
example batch '^\[10 + [0-9]* tokens' "$work/packed" "In the beginning" "In the end"
example perplexity '^KL 0\.[0-9]* nats' "$work/packed" "$work/text" "$work/model"
finish
