# SPDX-License-Identifier: Apache-2.0
#
# Commands with text: tokenize, detokenize, run, chat, eval, on a tiny model of single bytes.
. "$(dirname "$0")/common.sh"
m=$work/model
text_model llama-tied "$m"

# tokenize and detokenize.
expect 0 '' "$PLEACH" tokenize "$m" 'Hi é'
[ "$(cat "$out")" = '72 105 32 195 169' ] || fault "tokenize gives $(cat "$out")"
expect 0 '' "$PLEACH" tokenize "$m" 'Hi' --json
expect_output '"n": 2'
printf 'a\nb' >"$work/text"
expect 0 '' "$PLEACH" tokenize "$m" --file "$work/text"
[ "$(cat "$out")" = '97 10 98' ] || fault "tokenize --file gives $(cat "$out")"
[ "$(printf 'a\nb' | "$PLEACH" tokenize "$m")" = '97 10 98' ] || fault "tokenize reads no stdin"
expect 0 '' "$PLEACH" tokenize "$m" ''
[ "$(cat "$out")" = '' ] || fault "an empty text has ids: $(cat "$out")"
expect 0 '' "$PLEACH" tokenize "$m" 'x<|im_end|>'
[ "$(wc -w <"$out")" -eq 11 ] || fault "a typed control token became one: $(cat "$out")"
expect 0 '' "$PLEACH" tokenize "$m" 'x<|im_end|>' --special
[ "$(cat "$out")" = '120 258' ] || fault "tokenize --special gives $(cat "$out")"
expect 0 '' "$PLEACH" detokenize "$m" 72 105 258
[ "$(cat "$out")" = 'Hi' ] || fault "detokenize gives $(cat "$out")"
expect 0 '' "$PLEACH" detokenize "$m" 72,105 258 --special
[ "$(cat "$out")" = 'Hi<|im_end|>' ] || fault "detokenize --special gives $(cat "$out")"
[ "$("$PLEACH" tokenize "$m" 'Grüße, 漢字 🦙' | "$PLEACH" detokenize "$m")" = 'Grüße, 漢字 🦙' ] ||
    fault "text does not survive tokenize and detokenize"
expect 2 'expected a token id, found "x"' "$PLEACH" detokenize "$m" 1 x

# run: the same text for every number of threads, however the prompt comes; always whole characters.
expect 0 '' "$PLEACH" run "$m" -p 'Hello there' -n 40
cp "$out" "$work/answer"
iconv -f UTF-8 -t UTF-8 "$out" >/dev/null 2>&1 || fault "the answer is not UTF-8"
for t in 1 2 3 4; do
    expect 0 '' "$PLEACH" run "$m" -p 'Hello there' -n 40 -t $t
    cmp -s "$out" "$work/answer" || fault "$t threads answer differently"
done
printf 'Hello there' >"$work/prompt"
expect 0 '' "$PLEACH" run "$m" -f "$work/prompt" -n 40
cmp -s "$out" "$work/answer" || fault "--file answers differently"
"$PLEACH" run "$m" -p - -n 40 <"$work/prompt" >"$out"
cmp -s "$out" "$work/answer" || fault "-p - answers differently"
"$PLEACH" run "$m" -f <(printf 'Hello there') -n 40 >"$out"
cmp -s "$out" "$work/answer" || fault "a pipe as --file answers differently"
expect 0 '' "$PLEACH" run "$m" -p 'Hello there' -n 40 --verbose
grep -q '^prompt: 11 tokens.*answer: [0-9]* tokens' "$err" || fault "no statistics: $(cat "$err")"
expect 0 '' "$PLEACH" run "$m" -p 'Hello there' -n 40
[ ! -s "$err" ] || fault "statistics without a terminal: $(cat "$err")"
for seed in 1 2 3 4 5; do
    expect 0 '' "$PLEACH" run "$m" -p 'Hello' -n 60 --temp 3 --seed $seed
    iconv -f UTF-8 -t UTF-8 "$out" >/dev/null 2>&1 || fault "seed $seed: the answer is not UTF-8"
done
expect 0 '' "$PLEACH" run "$m" --chat -p 'Hello <|im_end|>' --system 'Be brief.' -n 8 --json
expect_output '"prompt_tokens": '
expect 0 '' "$PLEACH" run "$m" -p '<|im_start|>user' --special -n 1 --json
expect_output '"prompt_tokens": 5'
expect 1 'at least one token' "$PLEACH" run "$m" -p ''
expect 1 'cannot open /no/file' "$PLEACH" run "$m" -f /no/file
expect 1 'the context holds' "$PLEACH" run "$m" -p "$(head -c 600 /dev/zero | tr '\0' x)"

# Ctrl-C ends the answer: status 130.
"$PLEACH" run "$m" -p Hello -n 0 --ignore-end --ctx 100000 >"$out" 2>"$err" &
pid=$!
for _ in $(seq 100); do [ -s "$out" ] && break; sleep 0.05; done
kill -INT $pid
wait $pid
[ $? -eq 130 ] || fault "an interrupted run does not give 130"

# A reader that leaves.
{ "$PLEACH" run "$m" -p Hello -n 0 --ignore-end --ctx 100000 2>"$err"; echo $? >"$work/status"; } | head -c 10 >/dev/null
[ "$(cat "$work/status")" = 1 ] || fault "a closed pipe gives status $(cat "$work/status")"
grep -q 'cannot write to standard output: Broken pipe' "$err" || fault "a closed pipe: $(cat "$err")"
[ "$(wc -l <"$err")" -eq 1 ] || fault "a closed pipe is reported more than once"

# chat: turns from a pipe.
chat() { printf '%s\n' "$@" | "$PLEACH" chat "$m" -n 12 -v >"$out" 2>"$err"; }
chat 'Hello' 'And now?' || fault "chat gives $?"
grep -c '^prompt: ' "$err" | grep -q '^2$' || fault "chat does not answer twice: $(cat "$err")"
grep "^prompt: " "$err" | sed -n 2p | grep -q ', [1-9][0-9]* of them cached' || fault "chat reuses no prefix: $(cat "$err")"
for words in 'chat --ctx 200' 'run -p Hello'; do # the statistics have a line of their own in one stream, too
    printf '%s\n' 'Hello' 'And now?' | "$PLEACH" ${words%% *} "$m" ${words#* } -n 12 -v >"$work/both" 2>&1
    grep -a -q '^prompt: ' "$work/both" || fault "$words: no statistics"
    ! grep -a -q '.prompt: [0-9]' "$work/both" || fault "$words: statistics on the answer's line"
done
iconv -f UTF-8 -t UTF-8 "$out" >/dev/null 2>&1 || fault "chat's answers are not UTF-8"
chat 'Hello' '/reset' 'Hello' || fault "chat with /reset gives $?"
awk '/^prompt: / {print $2}' "$err" | uniq | wc -l | grep -q '^1$' || fault "/reset forgets nothing: $(cat "$err")"
chat '/system Be brief.' 'Hello' '/quit' 'Never reached' || fault "chat with /quit gives $?"
grep -c '^prompt: ' "$err" | grep -q '^1$' || fault "/quit does not leave: $(cat "$err")"
chat '/help' || fault "chat with /help gives $?"
expect_output '^/reset '
expect_output '^/system '
! chat '/rest' || fault "an unknown chat command passes"
grep -q '^pleach: unknown command /rest; .*/reset' "$err" || fault "no hint: $(cat "$err")"
chat '' || fault "an empty line ends chat with $?"
expect 0 '' "$PLEACH" chat "$m"
! chat "$(head -c 600 /dev/zero | tr '\0' x)" || fault "a turn that does not fit passes"
grep -q 'the context holds' "$err" || fault "no word about the context: $(cat "$err")"

# A model file that is cut off while it is in use, between the first answer and the second.
cp -r "$m" "$work/cut"
mkfifo "$work/turns"
: >"$out"
timeout 60 "$PLEACH" chat "$work/cut" -n 1 <"$work/turns" >"$out" 2>"$err" &
pid=$!
exec 3>"$work/turns"
echo Hello >&3
for _ in $(seq 200); do [ -s "$out" ] && break; sleep 0.05; done
truncate -s 4096 "$work/cut/model.safetensors"
(trap '' PIPE; echo Again >&3) 2>/dev/null # gone already, perhaps
exec 3>&-
wait $pid
[ $? -eq 1 ] || fault "a model file that is cut off does not give 1"
[ "$(cat "$err")" = 'pleach: a file was cut off, or its disk failed, while it was read' ] ||
    fault "a model file that is cut off: $(cat "$err")"

# An answer that keeps to a form, whatever the model would rather say.
echo 'root ::= ("yes" | "no") "!"{3}' >"$work/form.gbnf"
echo '{"type": "object", "properties": {"n": {"type": "integer", "minimum": 10, "maximum": 99}}, "required": ["n"]}' \
    >"$work/form.json"
"$PLEACH" run "$m" -p Hello --grammar "$work/form.gbnf" -n 40 >"$out" || fault "--grammar gives $?"
grep -qxE '(yes|no)!!!' "$out" || fault "--grammar: $(cat "$out")"
"$PLEACH" run "$m" -p Hello --json-schema "$work/form.json" -n 200 --temp 2 --seed 3 >"$out" ||
    fault "--json-schema gives $?"
tr -d ' \n' <"$out" | grep -qxE '\{"n":[1-9][0-9]\}' || fault "--json-schema: $(cat "$out")"
expect 2 'expected no --json-schema' "$PLEACH" run "$m" -p x --grammar "$work/form.gbnf" --json-schema "$work/form.json"
expect 1 "grammar, line 1: expected a rule's name" "$PLEACH" run "$m" -p x --grammar "$work/form.json"
expect 1 'JSON schema, line 1' "$PLEACH" run "$m" -p x --json-schema "$work/form.gbnf"
expect 1 'cannot' "$PLEACH" run "$m" -p x --grammar "$work/nowhere"

# A model without a chat template cannot chat.
cp -r "$m" "$work/no-template"
echo '{}' >"$work/no-template/tokenizer_config.json"
expect 1 'template' "$PLEACH" chat "$work/no-template"
expect 1 'template' "$PLEACH" run "$work/no-template" --chat -p hello

# On a terminal: a prompt, editing, Ctrl-C at the prompt and Ctrl-D.
if script -qec true /dev/null >/dev/null 2>&1; then # where pseudo-terminals can be had
    prompts() { # waits until N prompts have been shown
        for _ in $(seq 200); do
            [ "$(grep -c '^> ' "$out")" -ge "$1" ] && return
            sleep 0.1
        done
    }
    : >"$out"
    { prompts 1; printf '/hellp\177\177p\r'; prompts 2; printf 'half\003'; prompts 3; printf '/quit\r'; sleep 0.5; } |
        timeout 60 script -qec "exec $PLEACH chat $m" /dev/null >>"$out" 2>&1 || fault "chat on a terminal gives $?"
    expect_output '> '
    expect_output '^/reset  '
fi

# eval.
head -c 3000 "$PLEACH_SOURCE/LICENSE" >"$work/text"
expect 0 '' "$PLEACH" eval "$m" --text "$work/text" --ctx 64 --chunks 4
expect_output '^perplexity  *[1-9]'
expect 0 '' "$PLEACH" eval "$m" --text "$work/text" --ctx 64 --chunks 4 --score second-half --teacher "$m" --json
expect_output '"chunks": 4'
expect_output '"tokens": 124'
expect_output '"kl": 0.0'
expect_output '"same_top": 1.0'
cp "$out" "$work/json"
expect 0 '' "$PLEACH" eval "$m" --text "$work/text" --ctx 64 --chunks 4 --score second-half --teacher "$m" --json -t 1
diff <(grep -v seconds "$out") <(grep -v seconds "$work/json") >/dev/null || fault "eval depends on threads"
expect 1 'cannot open' "$PLEACH" eval "$m" --text "$work/no-text"
head -4 "$PLEACH_SOURCE/bench/tasks.jsonl" >"$work/tasks"
expect 0 '' "$PLEACH" eval "$m" --tasks "$work/tasks" --teacher "$m"
expect_output '^same choice         100.00 %'
expect 0 '' "$PLEACH" eval "$m" --tasks "$work/tasks" --json
expect_output '"acc_norm_error": '
echo '{"question": "2 + 3?"}' >>"$work/tasks"
expect 1 '/tasks: line 5: choices' "$PLEACH" eval "$m" --tasks "$work/tasks"
expect 2 'one of --text and --tasks' "$PLEACH" eval "$m" --tasks "$work/tasks" --text "$work/text"
expect 1 '.' "$PLEACH" eval "$m" --text /dev/null
expect 1 'no-teacher' "$PLEACH" eval "$m" --text "$work/text" --teacher "$work/no-teacher"

finish
