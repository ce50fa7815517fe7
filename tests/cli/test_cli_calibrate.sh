# SPDX-License-Identifier: Apache-2.0
#
# What quantize calibrates on when nothing is said, on a tiny model of single bytes, and what it says
# of a model that has no tokenizer.
. "$(dirname "$0")/common.sh"
bare=$golden/checkpoints/llama-tied m=$work/model
text_model llama-tied "$m"
few=(--calib-tokens 600)

expect 0 '' "$PLEACH" quantize "$m" "$work/default" "${few[@]}"
proxy='"proxy_loss": [0-9.e-]*[1-9]'
grep -q "$proxy" "$work/default/quantize-report.json" || fault "no calibration by default"
expect 0 '' "$PLEACH" quantize "$m" "$work/self" "${few[@]}" --calib self
cmp -s "$work/default/model.safetensors" "$work/self/model.safetensors" || fault "the default is not self"
expect 0 '' "$PLEACH" quantize "$m" "$work/none" "${few[@]}" --calib none
! grep -q "$proxy" "$work/none/quantize-report.json" || fault "none calibrates"
cmp -s "$work/none/model.safetensors" "$work/self/model.safetensors" && fault "self is none"

# Without a tokenizer, or with one that cannot be read, the line says how to do without.
expect 1 'tokenizer.json.*--calib none' "$PLEACH" quantize "$bare" "$work/x"
head -c 1000 "$PLEACH_SOURCE/bench/eval.txt" >"$work/text"
expect 1 '--calib none' "$PLEACH" quantize "$bare" "$work/x" --calib "$work/text"
expect 1 'no-text' "$PLEACH" quantize "$m" "$work/x" --calib "$work/no-text"
echo '{"model": 7}' >"$m/tokenizer.json"
expect 1 '--calib none' "$PLEACH" quantize "$m" "$work/x"
[ -z "$(ls -d "$work"/x* 2>/dev/null)" ] || fault "a refused run leaves something"
expect 0 '' "$PLEACH" quantize "$bare" "$work/x" --calib none
finish
