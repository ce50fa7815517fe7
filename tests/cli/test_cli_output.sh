# SPDX-License-Identifier: Apache-2.0
#
# Output that cannot be written is an error, not a success.
. "$(dirname "$0")/common.sh"

failing() {
    local pattern=$1 status=$2
    [ "$status" -eq 1 ] || fault "status $status, expected 1: $pattern"
    [ "$(wc -l <"$err")" -eq 1 ] || fault "not one line: $(cat "$err")"
    grep -q "^pleach: cannot write to standard output: $pattern" "$err" ||
        fault "expected \"$pattern\": $(cat "$err")"
}

model=$golden/checkpoints/llama-tied
if [ -w /dev/full ]; then
    for c in --version '--version --json' help 'help --man' 'help --completion zsh' 'run --help' \
        "inspect $model" "inspect $model --json" "verify $model" \
        "run $model --ids $model/golden.safetensors -n 2 --print-ids"; do
        "$PLEACH" $c >/dev/full 2>"$err"
        failing 'No space left' $?
    done
fi
"$PLEACH" help --man >&- 2>"$err"
failing 'Bad file descriptor' $?

# A pipe whose reader has gone. The reader leaves before the writer starts.
mkfifo "$work/pipe"
{ exec 3<"$work/pipe"; exec 3<&-; } &
exec 4>"$work/pipe"
wait
"$PLEACH" help --man >&4 2>"$err"
failing 'Broken pipe' $?
exec 4>&-

# With the standard streams closed no file that is opened takes their place.
cp "$model/golden.safetensors" "$work/ids"
"$PLEACH" logits "$model" --ids "$work/ids" -o "$work/logits" <&- >&- 2>&-
[ $? -eq 0 ] || fault "logits needs no standard streams"
cmp -s "$model/golden.safetensors" "$work/ids" || fault "the ids file changed"

finish
