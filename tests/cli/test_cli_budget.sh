# SPDX-License-Identifier: Apache-2.0
#
# quantize with budgets, patterns and plan files.
. "$(dirname "$0")/common.sh"
source=$golden/checkpoints/llama-tied
plain=(quantize "$source" --calib none) # a checkpoint without a tokenizer
bits_of() { "$PLEACH" inspect "$1" --json | sed -n 's/.*"block_bits": *\([0-9.]*\).*/\1/p'; }

# Several budgets make several folders; one makes the one that was named.
expect 0 '' "$PLEACH" "${plain[@]}" "$work/b/" --budget 2.6,3,3.5 --force
[ "$(grep -c '^memory  ' "$out")" -eq 3 ] || fault "not a promise of memory for each budget"
[ ! -e "$work/b" ] || fault "OUT itself was made"
for rate in 2.6 3 3.5; do
    expect_output "^output .*/b-$rate$"
    awk "BEGIN { exit !($(bits_of "$work/b-$rate") <= $rate) }" || fault "more than $rate bits"
done
expect 0 '' "$PLEACH" "${plain[@]}" "$work/one" --budget 2.6
expect_output '^warning .*no calibration'
cmp -s "$work/one/model.safetensors" "$work/b-2.6/model.safetensors" || fault "not the same bytes"
expect 0 '' "$PLEACH" "${plain[@]}" "$work/none" --budget 2.6,3 --dry-run --json
expect_output '"out": ".*none-3"'
for bad in 1 x 2.5x 2,,3 , 2.5, ,2.5 2.5,17 nan ''; do
    expect 2 '--budget' "$PLEACH" "${plain[@]}" "$work/none" --budget "$bad"
done
for twice in 2.5,2.5 2.5,3,2.50; do
    expect 2 'same number' "$PLEACH" "${plain[@]}" "$work/none" --budget $twice
done
expect 1 'cannot be met' "$PLEACH" "${plain[@]}" "$work/none" --budget 2.01
expect 1 'files of weights take' "$PLEACH" "${plain[@]}" "$work/none" --budget-file 0.00001

# What says the bits is said once.
expect 2 '--bits: --budget says the bits' "$PLEACH" "${plain[@]}" "$work/none" --budget 2.5 --bits 3
expect 2 '--bits: --budget-file says' "$PLEACH" "${plain[@]}" "$work/none" --budget-file 1 --bits 3
expect 2 'both say what may be spent' "$PLEACH" "${plain[@]}" "$work/none" --budget 3 --budget-file 1

# What memory is needed is said in the option's own unit, and does when it is given.
expect 1 '--memory: [0-9.]* GB ([0-9]* bytes) are needed, 0.0001 GB are allowed' \
    "$PLEACH" "${plain[@]}" "$work/none" --memory 0.0001
enough=$(sed 's/.*--memory: \([0-9.]*\) GB.*/\1/' "$err")
expect 0 '' "$PLEACH" "${plain[@]}" "$work/none" --memory "$enough" --dry-run

# A plan is saved, edited and given back; patterns come last.
expect 0 '' "$PLEACH" "${plain[@]}" "$work/none" --budget 3 --save-plan "$work/plan.json" --dry-run
sed -i 's/\("model.layers.1.mlp.up_proj": {"bits": \)[234]/\12/' "$work/plan.json"
expect 0 '' "$PLEACH" "${plain[@]}" "$work/planned" --plan "$work/plan.json" \
    --bits-for '*.k_proj=4' --bits-for '*.1.self_attn.k_proj=3'
expect 0 '' "$PLEACH" inspect "$work/planned"
expect_output 'k 2 .*layers.1.mlp.up_proj'
expect_output 'k 4 .*layers.0.self_attn.k_proj'
expect_output 'k 3 .*layers.1.self_attn.k_proj'
expect 1 'another model' "$PLEACH" quantize "$golden/checkpoints/qwen3-qknorm" "$work/none" --calib none --plan "$work/plan.json"
expect 1 'plan and a budget' "$PLEACH" "${plain[@]}" "$work/none" --plan "$work/plan.json" --budget 3
expect 2 '--save-plan' "$PLEACH" "${plain[@]}" "$work/none" --budget 3,2.5 --save-plan "$work/p"
[ -z "$(ls -d "$work"/none* 2>/dev/null)" ] || fault "a refused run leaves something"
finish
