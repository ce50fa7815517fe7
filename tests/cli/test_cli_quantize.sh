# SPDX-License-Identifier: Apache-2.0
#
# quantize and dequantize: what they write, and what they refuse.
. "$(dirname "$0")/common.sh"
source=$golden/checkpoints/llama-tied
plain=(quantize "$source" --calib none) # a checkpoint without a tokenizer
ids=(--ids "$source/golden.safetensors" -n 8 --print-ids)

# A plan writes nothing.
expect 0 '' "$PLEACH" "${plain[@]}" "$work/plan" --bits 4 --dry-run
expect_output '^block matrices .*bits a weight'
expect_output '^memory '
expect_output 'trellis   4 .*model.layers.0.mlp.up_proj'
expect 0 '' "$PLEACH" "${plain[@]}" "$work/plan" --dry-run --json
expect_output '"dry_run": true'
[ -z "$(ls -d "$work"/plan* 2>/dev/null)" ] || fault "--dry-run leaves something"

# Every kind of code runs, and is what the options say.
for code in 21 30 40 41; do
    bits=${code%?} axis=${code#?} q=$work/q$code
    expect 0 '' "$PLEACH" "${plain[@]}" "$q" --bits $bits --axis $axis
    expect_output '^relative error  0\.'
    expect 0 '' "$PLEACH" verify "$q"
    expect 0 '' "$PLEACH" inspect "$q" --json
    expect_output "\"k\": $bits"
    expect_output "\"axis\": $axis"
    expect 0 '' "$PLEACH" run "$q" "${ids[@]}"
done
expect 0 '' "$PLEACH" "${plain[@]}" "$work/options" --bits 3 --state-bits 16 --embed-bits 16 \
    --rotate none --keep '*.down_proj' --seed 9 --json
expect_output '"relative_error": 0\.'
expect_output '"peak_memory": '
! grep -q '^memory' "$out" || fault "JSON and something else"
expect 0 '' "$PLEACH" inspect "$work/options"
expect_output ' L 16 '
expect_output '^128x256 .*dense .*down_proj'
! grep -q rotate "$out" || ! grep 'trellis .*rotate [1-9]' "$out" || fault "--rotate none rotates"

# A device that is not there is refused before there is a work folder; the exact search has none.
expect 1 'device cuda:9999: \(this build has no CUDA\|no NVIDIA GPU\|this machine has\)' \
    "$PLEACH" "${plain[@]}" "$work/device" --device cuda:9999
expect 1 'the exact search' "$PLEACH" "${plain[@]}" "$work/device" --device cuda --encode exact
expect 2 '--device: expected cpu' "$PLEACH" "${plain[@]}" "$work/device" --device gpu
[ -z "$(ls -d "$work"/device* 2>/dev/null)" ] || fault "a refused device leaves something"

# Twice the same bytes, whatever the threads.
expect 0 '' "$PLEACH" "${plain[@]}" "$work/again" --bits 3 --axis 0 -t 1
cmp -s "$work/again/model.safetensors" "$work/q30/model.safetensors" || fault "not the same bytes twice"

# An output that exists is left alone, and replaced on --force.
expect 1 "$work/again" "$PLEACH" "${plain[@]}" "$work/again" --bits 4
cmp -s "$work/again/model.safetensors" "$work/q30/model.safetensors" || fault "the output changed"
expect 0 '' "$PLEACH" "${plain[@]}" "$work/again" --bits 4 --axis 0 --force
cmp -s "$work/again/model.safetensors" "$work/q40/model.safetensors" || fault "--force gives other bytes"

# SRC and OUT may not be the same, by whatever path.
cp -r "$source" "$work/source"
ln -s source "$work/link"
sum=$(cat "$work"/source/* | cksum)
for same in "$work/source" "$work/link" "$work/./x/../source" "$work/source/"; do
    mkdir -p "$work/x"
    expect 1 '.' "$PLEACH" quantize "$work/source" "$same"
    expect 1 '.' "$PLEACH" quantize "$work/source" "$same" --force
    expect 1 '.' "$PLEACH" dequantize "$work/source" "$same" --force
done
[ "$sum" = "$(cat "$work"/source/* | cksum)" ] || fault "the source changed"
expect 1 'no-source' "$PLEACH" quantize "$work/no-source" "$work/x1"
expect 1 'no/folder' "$PLEACH" "${plain[@]}" /no/folder/out
expect 1 '.' "$PLEACH" quantize "$golden" "$work/x2"

# dequantize: a plain folder with the same answers.
expect 0 '' "$PLEACH" dequantize "$work/q41" "$work/plain"
expect 0 '' "$PLEACH" verify "$work/plain"
expect 0 '' "$PLEACH" inspect "$work/plain"
! grep -q ' trellis  *U32' "$out" || fault "dequantize leaves codes"
"$PLEACH" logits "$work/q41" --ids "$source/golden.safetensors" -o "$work/a" --arith f32
"$PLEACH" logits "$work/plain" --ids "$source/golden.safetensors" -o "$work/b" --arith f32
tensor "$work/a" logits f4 >"$work/a.txt"
tensor "$work/b" logits f4 >"$work/b.txt"
difference=$(largest_difference "$work/a.txt" "$work/b.txt")
scale=$(awk '{s += $1 * $1} END {print sqrt(s / NR)}' "$work/a.txt")
awk "BEGIN {exit !($difference < 0.1 * $scale)}" || fault "dequantized logits differ by $difference"
expect 1 "$work/plain" "$PLEACH" dequantize "$work/q41" "$work/plain"
expect 0 '' "$PLEACH" dequantize "$work/q41" "$work/plain" --force

# Ctrl-C keeps the work; the next run goes on; other options are refused by name, or start over.
slow=(--bits 4 --axis 1 --state-bits 16 -t 1)
expect 0 '' "$PLEACH" "${plain[@]}" "$work/whole" "${slow[@]}"
interrupted() {
    rm -rf "$work/cut" "$work/cut.partial"
    "$PLEACH" "${plain[@]}" "$work/cut" "${slow[@]}" >"$out" 2>"$err" &
    local pid=$! i
    for i in $(seq 200); do [ "$(du -sb "$work/cut.partial" 2>/dev/null | cut -f1)" -gt 20000 ] 2>/dev/null && break; sleep 0.02; done
    kill -INT $pid 2>/dev/null
    wait $pid
}
interrupted
status=$?
if [ $status -eq 0 ]; then
    echo "note: quantizing ended before it could be interrupted"
else
    [ $status -eq 130 ] || fault "an interrupted quantize gives $status: $(cat "$err")"
    expect_output '^memory          at most ' # was said before the work
    [ ! -e "$work/cut" ] || fault "half a model lies under the final name"
    expect 1 'bits' "$PLEACH" "${plain[@]}" "$work/cut" "${slow[@]}" --bits 3
    expect 0 '' "$PLEACH" "${plain[@]}" "$work/cut" "${slow[@]}"
    cmp -s "$work/cut/model.safetensors" "$work/whole/model.safetensors" || fault "resuming gives other bytes"
    interrupted
    expect 0 '' "$PLEACH" "${plain[@]}" "$work/cut" --bits 3 --axis 0 --restart
    cmp -s "$work/cut/model.safetensors" "$work/q30/model.safetensors" || fault "--restart gives other bytes"
    [ ! -e "$work/cut.partial" ] || fault "partial work is left"
fi

# A file that may not grow, and a full disk: one line, nothing under the final name; the work goes
# on when there is room again.
limited() (
    ulimit -f 64 # blocks of 1024 bytes
    exec "$PLEACH" "$@"
)
expect 1 'limited' limited "${plain[@]}" "$work/limited" --bits 3 --axis 0
[ ! -e "$work/limited" ] || fault "half a model lies under the final name"
seq 0 99 >"$work/many"
expect 1 'cut-short' limited logits "$source" --ids "$work/many" -o "$work/cut-short"
[ ! -e "$work/cut-short" ] && [ ! -e "$work/cut-short.partial" ] || fault "half a file is left"
expect 0 '' "$PLEACH" "${plain[@]}" "$work/limited" --bits 3 --axis 0
cmp -s "$work/limited/model.safetensors" "$work/q30/model.safetensors" || fault "other bytes after a limit"
mkdir "$work/disk"
if mount -t tmpfs -o size=100k none "$work/disk" 2>/dev/null; then
    expect 1 'space' "$PLEACH" "${plain[@]}" "$work/disk/out" --bits 3 --axis 0
    [ ! -e "$work/disk/out" ] || fault "half a model lies under the final name"
    mount -o remount,size=10m "$work/disk"
    expect 0 '' "$PLEACH" "${plain[@]}" "$work/disk/out" --bits 3 --axis 0
    cmp -s "$work/disk/out/model.safetensors" "$work/q30/model.safetensors" || fault "other bytes after a full disk"
    umount "$work/disk"
else
    echo "note: no file system to fill up here"
fi

# Killed at any point: nothing under the final name but the whole, and the next run makes that.
for delay in 0.02 0.1 0.3; do
    rm -rf "$work/killed" "$work/killed.partial"
    "$PLEACH" "${plain[@]}" "$work/killed" "${slow[@]}" >/dev/null 2>&1 &
    pid=$!
    sleep $delay
    kill -KILL $pid 2>/dev/null
    wait $pid 2>/dev/null
    if [ -e "$work/killed" ]; then
        cmp -s "$work/killed/model.safetensors" "$work/whole/model.safetensors" || fault "half a model has the final name"
        continue
    fi
    expect 0 '' "$PLEACH" "${plain[@]}" "$work/killed" "${slow[@]}"
    cmp -s "$work/killed/model.safetensors" "$work/whole/model.safetensors" || fault "other bytes after a kill"
done

finish
