# SPDX-License-Identifier: Apache-2.0
#
# What the program's tests share; sourced by each of them. PLEACH is the program, PLEACH_SOURCE the
# repository; both come from ctest.

set -u
: "${PLEACH:?the program to test}" "${PLEACH_SOURCE:?the source folder}"
golden=$PLEACH_SOURCE/tests/golden
work=$(mktemp -d "${TMPDIR:-/tmp}/pleach-cli.XXXXXX")
trap 'umount "$work/disk" 2>/dev/null; rm -rf "$work"' EXIT
out=$work/stdout err=$work/stderr
failures=0

fault() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

# expect STATUS PATTERN COMMAND...: the exit status, and when it is not 0 a single line on stderr
# that begins with "pleach: " and matches PATTERN. Output stays in $out and $err.
expect() {
    local want=$1 pattern=$2 got
    shift 2
    "$@" >"$out" 2>"$err" </dev/null
    got=$?
    [ "$got" -eq "$want" ] || fault "$* gives status $got, expected $want: $(cat "$err")"
    if [ "$want" -ne 0 ]; then
        [ "$(wc -l <"$err")" -eq 1 ] || fault "$* prints more than one line: $(cat "$err")"
        grep -q '^pleach: ' "$err" || fault "$* prints no \"pleach: \": $(cat "$err")"
        grep -q -e "$pattern" "$err" || fault "$* does not say \"$pattern\": $(cat "$err")"
    fi
}

# expect_output PATTERN: what the last command printed.
expect_output() {
    grep -q -e "$1" "$out" || fault "output lacks \"$1\": $(head -c 600 "$out")"
}

# The numbers of a tensor of a small safetensors file, one a line: tensor FILE NAME TYPE, where TYPE
# is od's (d4, f4).
tensor() {
    local header begin end
    header=$(od -An -td8 -N8 "$1" | tr -d ' ')
    read -r begin end <<<"$(tail -c +9 "$1" | head -c "$header" | tr -d ' ' |
        sed "s/.*\"$2\":{[^}]*\"data_offsets\":\[\([0-9]*\),\([0-9]*\)\].*/\1 \2/")"
    od -An -v -w4 -t"$3" -j $((8 + header + begin)) -N $((end - begin)) "$1" | tr -d ' '
}

# The largest |x - y| of two files with one number a line.
largest_difference() {
    paste "$1" "$2" | awk '{d = $1 - $2; if (d < 0) d = -d; if (!(d <= m)) m = d}
                           END {printf "%.9g\n", m}'
}

# text_model NAME DIR: a copy of a tiny checkpoint with a tokenizer of single bytes (id = byte) and
# ChatML's control tokens.
text_model() {
    mkdir "$2"
    cp "$golden/checkpoints/$1"/{config.json,model.safetensors} "$2"
    awk 'BEGIN {
        printf "{\"version\":\"1.0\",\"normalizer\":null,\"post_processor\":null,"
        printf "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true},"
        printf "\"decoder\":{\"type\":\"ByteLevel\"},\"added_tokens\":["
        split("<|endoftext|> <|im_start|> <|im_end|>", special, " ")
        for (i = 1; i <= 3; i++)
            printf "%s{\"id\":%d,\"content\":\"%s\",\"special\":true,\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false}", (i > 1 ? "," : ""), 255 + i, special[i]
        printf "],\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{"
        other = 256 # bytes that do not print stand for U+0100 and up, as in GPT-2
        for (b = 0; b < 256; b++) {
            shown = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174
            printf "%s\"\\u%04x\":%d", (b ? "," : ""), (shown ? b : other++), b
        }
        printf "}}}\n"
    }' >"$2/tokenizer.json"
    cat >"$2/tokenizer_config.json" <<'JSON'
{"eos_token": "<|im_end|>", "chat_template": "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"}
JSON
}

finish() {
    [ "$failures" -eq 0 ] || { echo "$failures failures"; exit 1; }
    echo "passed"
    exit 0
}
