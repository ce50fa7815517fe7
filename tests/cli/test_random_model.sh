# SPDX-License-Identifier: Apache-2.0
#
# bench/random_model.py: what it writes runs, and sizes that no model has are refused in one line.
. "$(dirname "$0")/common.sh"
command -v python3 >/dev/null || { echo "no python3: skipped"; exit 77; }
make=$PLEACH_SOURCE/bench/random_model.py
echo 1 2 3 >"$work/ids"
small="--hidden 256 --mlp 512 --layers 1 --heads 4 --kv-heads 4 --vocabulary 300"

for sizes in '' '--axis 1 --kv-heads 2' '--heads 3 --kv-heads 3 --head-dim 256' '--bits 2'; do
    rm -rf "$work/model"
    expect 0 '' python3 "$make" "$work/model" $small $sizes
    expect 0 '' "$PLEACH" verify "$work/model"
    expect 0 '' "$PLEACH" logits "$work/model" --ids "$work/ids" -o "$work/logits"
done

refused() { # refused PATTERN ARGUMENT...: exit status 2, one line, no folder
    local pattern=$1
    shift
    python3 "$make" "$@" >"$out" 2>"$err"
    [ $? -eq 2 ] || fault "$* is not refused"
    [ "$(wc -l <"$err")" -eq 1 ] || fault "$* prints more than one line: $(cat "$err")"
    grep -q -e "$pattern" "$err" || fault "$* does not say $pattern: $(cat "$err")"
    [ ! -e "$work/none" ] || fault "$* leaves a folder"
}
refused 'there already' "$work/model" $small
refused '--hidden: 100 is no multiple' "$work/none" $small --hidden 100
refused '--heads: 7 does not divide' "$work/none" $small --heads 7 --kv-heads 7
refused '--heads: expected 1' "$work/none" $small --heads 0
refused '--mlp: 300 is no multiple' "$work/none" $small --mlp 300
refused '--kv-heads: 3 does not divide' "$work/none" $small --kv-heads 3
refused '--kv-heads: expected 1' "$work/none" $small --kv-heads -4
refused '--kv-heads: 16 does not divide' "$work/none" $small --kv-heads 16
refused '--kv-heads times .* 64 is no' "$work/none" $small --kv-heads 1
refused '--layers: expected 1' "$work/none" $small --layers 0
refused '--head-dim: expected an even' "$work/none" $small --head-dim 3
refused '--vocabulary: expected 1' "$work/none" $small --vocabulary 0
finish
