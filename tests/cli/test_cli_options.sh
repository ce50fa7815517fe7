# SPDX-License-Identifier: Apache-2.0
#
# Command lines: what is wrong with one is said in one line, with exit status 2.
. "$(dirname "$0")/common.sh"

commands="quantize run chat eval logits tokenize detokenize inspect verify dequantize bench help version"

# Help: every command has it, with a usage line and an example, by all three ways.
expect 0 '' "$PLEACH" --help
for c in $commands; do
    expect_output "^  $c  *[a-z]"
    grep -q "^  $c " "$out" || fault "help does not list $c"
done
for c in $commands; do
    expect 0 '' "$PLEACH" "$c" --help
    expect_output "^usage: pleach $c"
    expect_output '^examples:'
    expect_output "^  pleach "
    [ "$(awk '/^examples:/ {exit} length > longest {longest = length} END {print longest}' "$out")" -le 80 ] ||
        fault "$c --help has lines of more than 80 characters"
    cp "$out" "$work/help"
    expect 0 '' "$PLEACH" "$c" -h
    cmp -s "$out" "$work/help" || fault "$c -h differs from --help"
    expect 0 '' "$PLEACH" help "$c"
    cmp -s "$out" "$work/help" || fault "help $c differs from $c --help"
done

# --help wins over missing operands and stops the parsing.
expect 0 '' "$PLEACH" quantize --help --no-such-option

# Version.
expect 0 '' "$PLEACH" --version
expect_output '^pleach [0-9]*\.[0-9]*\.[0-9]*$'
expect 0 '' "$PLEACH" --version --json
expect_output '"cpu_levels": \['
expect_output '"int16"'
expect_output '"gguf"'

# Commands.
expect 2 'a command is missing' "$PLEACH"
expect 2 'unknown command "quant"; did you mean quantize?' "$PLEACH" quant a b
expect 2 'did you mean detokenize?' "$PLEACH" detokenise m
expect 2 'unknown command "frobnicate"; "pleach help"' "$PLEACH" frobnicate
expect 2 'unknown command "foo"' "$PLEACH" help foo

# Unknown options.
expect 2 'unknown option --bit; did you mean --bits?' "$PLEACH" quantize --bit 3 a b
expect 2 'unknown option --jsno; did you mean --json?' "$PLEACH" inspect m --jsno
expect 2 'unknown option --tmep; did you mean --temp?' "$PLEACH" run m -p x --tmep=1
expect 2 'unknown option -q; "pleach run --help"' "$PLEACH" run m -p x -q
expect 2 'unknown option --xyzzyxyzzy' "$PLEACH" run m --xyzzyxyzzy
expect 2 '.' "$PLEACH" run "--$(head -c 5000 /dev/zero | tr '\0' x)"

# Operands.
expect 2 'OUT is missing' "$PLEACH" quantize a
expect 2 'SRC is missing' "$PLEACH" quantize
expect 2 '"c" is one word too many' "$PLEACH" quantize a b c
expect 2 'MODEL is missing' "$PLEACH" inspect
expect 2 'one of --text and --tasks' "$PLEACH" eval m
expect 2 'expected one prompt' "$PLEACH" run m
expect 2 'expected one prompt' "$PLEACH" run m -p x -f y
expect 2 'TEXT or --file' "$PLEACH" tokenize m x --file y
expect 2 'IDS or --file' "$PLEACH" detokenize m 1 --file y
expect 2 'expected --chat' "$PLEACH" run m -p x --system y

# Numbers are numbers to the last character, and in range.
for bad in 12x x '' ' 5' 5.0 0x10 1e3 99999999999999999999 -99999999999999999999 -1 +5 '5 '; do
    expect 2 '-n, --tokens: expected a whole number from 0 to [0-9]*, found "' "$PLEACH" run m -p x -n "$bad"
done
for bad in nan NaN inf -inf 1e999 0x1p3 1.5x '' -0.5 101 ' 1' e . -; do
    expect 2 '--temp: expected a number from 0 to 100, found "' "$PLEACH" run m -p x --temp "$bad"
done
expect 2 '--top-p: .* 0 to 1, found "1.01"' "$PLEACH" run m -p x --top-p 1.01
expect 2 '--threads: .* 1 to 256, found "0"' "$PLEACH" bench m -t 0
expect 2 '--threads: .* 1 to 256, found "257"' "$PLEACH" run m -p x -t257
expect 2 '--ctx: .*found "0"' "$PLEACH" run m -p x --ctx 0
expect 2 '--seed: .*found "1.5"' "$PLEACH" run m -p x --seed=1.5
expect 2 '--repeat-window: .* -1 to .*found "-2"' "$PLEACH" run m -p x --repeat-window -2

# Choices.
expect 2 '--bits: expected one of 2, 3, 4, found "5"' "$PLEACH" quantize a b --bits 5
expect 2 '--bits: expected one of 2, 3, 4, found "03"' "$PLEACH" quantize a b --bits 03
expect 2 '--axis: expected one of 0, 1, found "2"' "$PLEACH" quantize a b --axis 2
expect 2 '--state-bits: expected one of 12, 16' "$PLEACH" quantize a b --state-bits 13
expect 2 '--rotate: expected one of none, input' "$PLEACH" quantize a b --rotate in
expect 2 '--kv: expected a cache type: f32, bf16, or kKvV .*found "f16"' "$PLEACH" chat m --kv f16
expect 2 '--device: expected cpu, cuda or cuda:N, found "gpu"' "$PLEACH" run m -p x --device gpu
expect 2 '--device: expected cpu' "$PLEACH" run m -p x --device cuda:x
expect 2 '--arith: expected one of int16, int16x2, f32, bf16, int8' "$PLEACH" eval m --text x --arith int4
expect 2 '--completion: expected one of bash' "$PLEACH" help --completion tcsh
expect 2 '--cpu: expected a level of this machine (c.*found "mmx"' "$PLEACH" bench m --cpu mmx

expect 2 'bench: --tune measures this machine, not m: give no MODEL' "$PLEACH" bench m --tune
expect 2 'bench: MODEL is missing' "$PLEACH" bench
for unused in 'ctx 5' 'kv x' 'kv-recent 1' 'tokens 3' 'arith f32'; do
    expect 2 "bench: --${unused% *} .* --tune has no use" "$PLEACH" bench --tune --$unused
    expect 2 "bench: --${unused% *} .* kernels has no use" "$PLEACH" bench kernels --$unused
done

# Values.
expect 2 'found the end of the line' "$PLEACH" run m -p x -n
expect 2 '--json takes no value, found "3"' "$PLEACH" inspect m --json=3
expect 2 'prompt: expected TEXT, found the end' "$PLEACH" run m -vp

# Words after -- are operands; what comes from outside cannot forge a second line.
expect 1 'no-such-model' "$PLEACH" inspect -- --no-such-model
expect 2 'one?two' "$PLEACH" "$(printf 'one\ntwo')"
expect 2 'unknown option --o?x' "$PLEACH" inspect m "--$(printf 'o\033x')"

finish
