# SPDX-License-Identifier: Apache-2.0
#
# The program on other machines than this one: fewer processors than threads, older processors, no GPU.
. "$(dirname "$0")/common.sh"
model=$golden/checkpoints/llama-packed
generate=("$PLEACH" run "$model" --ids "$model/golden.safetensors" -n 8 --print-ids)

expect 0 '' "${generate[@]}"
want=$(cat "$out")
[ "$(wc -w <"$out")" -eq 8 ] || fault "eight ids are: $want"

# More threads than processors neither hang nor change anything (the minute is a guard, not a
# measure), and without a number there are as many as one may use.
same() { # same COMMAND...: the same ids
    expect 0 '' timeout 60 "$@"
    [ "$(cat "$out")" = "$want" ] || fault "$* gives $(cat "$out"), not $want"
}
same "${generate[@]}" -t 16
if command -v taskset >/dev/null; then
    first=$(taskset -pc $$ | sed 's/.*: *\([0-9]*\).*/\1/')
    same taskset -c "$first" "${generate[@]}" -t 16
    expect 0 '' taskset -c "$first" "$PLEACH" version --json
    expect_output '"threads": 1,'
fi

# One binary serves processors of every level. Haswell has AVX2 and no AVX-512, Nehalem neither.
if [ "$(uname -m)" = x86_64 ] && command -v qemu-x86_64 >/dev/null && [ -z "${PLEACH_SANITIZED:-}" ]; then
    for processor in Haswell:avx2 Nehalem:c; do
        emulated=(qemu-x86_64 -cpu "${processor%:*}" "$PLEACH")
        "${emulated[@]}" version --json 2>/dev/null >"$out"
        expect_output "\"cpu\": \"${processor#*:}\""
        got=$("${emulated[@]}" "${generate[@]:1}" 2>/dev/null)
        [ "$got" = "$want" ] || fault "on $processor: $got, not $want"
    done
fi

# What this build can do is told, and what it cannot is refused before a model is read.
expect 0 '' "$PLEACH" version --json
expect_output '"k8v3"'
expect_output '"devices"'
same "${generate[@]}" --kv f32
expect 0 '' "${generate[@]}" --kv k8v3
expect 2 'f32, bf16, or kKvV with K of 8, 5, 4 or 2' "${generate[@]}" --kv k9v3
for device in cuda:0,cuda:1 cuda0 gpu 'cuda:-1'; do
    expect 2 "$device" "$PLEACH" run /nonexistent -p x --device "$device"
done

finish
