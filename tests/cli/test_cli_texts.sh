# SPDX-License-Identifier: Apache-2.0
#
# The man page and the completions, made from the option tables.
. "$(dirname "$0")/common.sh"

# The man page says all that --help says, and renders without a warning.
expect 0 '' "$PLEACH" help --man
cp "$out" "$work/pleach.1"
if command -v groff >/dev/null; then
    LC_ALL=C.UTF-8 groff -ww -man -Tutf8 "$work/pleach.1" >"$work/page" 2>"$err" || fault "groff fails"
    [ ! -s "$err" ] || fault "groff warns: $(cat "$err")"
    for c in quantize run chat eval logits tokenize detokenize inspect verify dequantize bench; do
        grep -q "pleach $c" "$work/page" || fault "the man page lacks $c"
    done
fi
if command -v mandoc >/dev/null; then
    mandoc -T lint -W error "$work/pleach.1" || fault "mandoc finds errors"
fi
for option in $("$PLEACH" quantize --help | sed -n 's/^ .*--\([a-z-]*\).*/\1/p' | sort -u); do
    roff=$(printf '%s' "--$option" | sed 's/-/\\-/g')
    [ "$option" = help ] || grep -qF -e "$roff" "$work/pleach.1" || fault "the man page lacks --$option"
done

# Completions parse, and complete.
for shell in bash zsh fish; do
    expect 0 '' "$PLEACH" help --completion "$shell"
    cp "$out" "$work/completion.$shell"
    ! command -v "$shell" >/dev/null || "$shell" -n "$work/completion.$shell" ||
        fault "$shell does not parse its completions"
done
complete_words() {
    (
        . "$work/completion.bash"
        COMP_WORDS=("$@")
        COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
        _pleach
        echo "${COMPREPLY[*]}"
    )
}
completes() {
    local want=$1 got
    shift
    got=$(complete_words "$@")
    [ "$got" = "$want" ] || fault "\"$*\" completes to \"$got\", expected \"$want\""
}
completes 'quantize' pleach qu
completes 'detokenize dequantize' pleach de
completes 'none input both online fold scale' pleach quantize a b --rotate ''
completes 'input' pleach quantize --rotate i
completes '--top-k --top-p' pleach run m --top
completes '--dry-run' pleach quantize --dr
completes '' pleach inspect some-file

finish
