# SPDX-License-Identifier: Apache-2.0
#
# The report, and budgets spent by statistics, on a tiny model of single bytes.
. "$(dirname "$0")/common.sh"
m=$work/model q=$work/q
text_model llama-tied "$m"
head -c 3000 "$PLEACH_SOURCE/bench/eval.txt" >"$work/calib"
tail -c 2400 "$PLEACH_SOURCE/bench/eval.txt" >"$work/text"
# Figures of quality, and the command that gives them again.
expect 0 '' "$PLEACH" quantize "$m" "$q" --budget 2.7,3.2 --calib "$work/calib" --calib-tokens 1024 \
    --report-text "$work/text"
! grep '^warning' "$out" | grep -v 'so few mislead' || fault "a warning"
[ "$(grep -c '^evaluation  *KL [0-9.]*, perplexity [0-9.]*, same top token [0-9.]* %$' "$out")" -eq 2 ] ||
    fault "no figures: $(cat "$out")"
[ ! -e "$q.statistics" ] || fault "the shared calibration stays"
for rate in 2.7 3.2; do
    json=$q-$rate/quantize-report.json
    command=$(sed -n 's/.*"command": "pleach \(.*\)",/\1/p' "$json")
    expect 0 '' "$PLEACH" $command --json
    kl=$(sed -n 's/.*"kl": *\([0-9.e-]*\).*/\1/p' "$out")
    grep -q "\"kl\": ${kl%??}" "$json" || fault "the report's KL is not $kl"
    grep -q '<h2>Proxy loss by layer and kind</h2>' "$q-$rate/report.html" || fault "no proxy loss"
    grep -q '&plusmn;' "$q-$rate/report.html" || fault "no figures in the page"
done

# A model without a tokenizer is refused before the work, whatever else could be done.
expect 1 '--report-text needs a tokenizer' "$PLEACH" quantize "$golden/checkpoints/llama-tied" "$work/mute" \
    --calib none --report-text "$work/text"
[ -z "$(ls -d "$work"/mute* 2>/dev/null)" ] || fault "a refused run leaves something"
expect 0 '' "$PLEACH" quantize "$m" "$work/json" --calib none --report-text "$work/text" --json
expect_output '"same_top": [0-9]'

# A text that cannot be scored costs the run the figures alone.
printf x >"$work/short"
expect 0 '' "$PLEACH" quantize "$m" "$work/unscored" --calib none --report-text "$work/short"
expect_output '^warning  *not evaluated: '
! grep '^evaluation' "$out" || fault "figures of a text that was not scored"

# One budget at a time gives the same bytes; so does a plan that was saved.
expect 0 '' "$PLEACH" quantize "$m" "$work/one" --budget 3.2 --calib "$work/calib" --calib-tokens 1024 \
    --statistics "$work/kept" --save-plan "$work/plan"
cmp -s "$work/one/model.safetensors" "$q-3.2/model.safetensors" || fault "not the same bytes"
grep -q '"loss": ' "$work/plan" || fault "a plan without losses"
expect 0 '' "$PLEACH" quantize "$m" "$work/planned" --plan "$work/plan" --calib "$work/calib" \
    --calib-tokens 1024 --statistics "$work/kept"
cmp -s "$work/one/model.safetensors" "$work/planned/model.safetensors" || fault "the plan gives other bytes"

# Without a backward pass too.
expect 0 '' "$PLEACH" quantize "$m" "$work/plain" --budget 3 --calib "$work/calib" \
    --calib-tokens 512 --plain-hessian
! grep '^warning' "$out" | grep -v 'so few mislead' || fault "a warning"
finish
