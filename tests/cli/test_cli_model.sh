# SPDX-License-Identifier: Apache-2.0
#
# Commands that look at and run a model, on checkpoints without a tokenizer.
. "$(dirname "$0")/common.sh"
checkpoints=$golden/checkpoints
model=$checkpoints/llama-tied

# logits and run agree with the reference, from ids in a safetensors file and as text.
for name in llama-tied llama-rope3 qwen2-bias qwen3-qknorm mistral-swa; do
    m=$checkpoints/$name
    tensor "$m/golden.safetensors" logits f4 >"$work/want"
    expect 0 '' "$PLEACH" logits "$m" --ids "$m/golden.safetensors" -o "$work/$name" --arith f32
    tensor "$work/$name" logits f4 >"$work/got"
    difference=$(largest_difference "$work/want" "$work/got")
    awk "BEGIN {exit !($difference < 1e-3)}" || fault "$name: logits differ by $difference"
    expect 0 '' "$PLEACH" run "$m" --ids "$m/golden.safetensors" -n 16 --print-ids --arith f32
    [ "$(cat "$out")" = "$(tensor "$m/golden.safetensors" greedy d4 | paste -sd ' ')" ] ||
        fault "$name: greedy ids are $(cat "$out")"
done
tensor "$model/golden.safetensors" input_ids d4 | paste -sd , >"$work/ids.txt"
expect 0 '' "$PLEACH" logits "$model" --ids "$work/ids.txt" -o "$work/from-text" --arith f32
cmp -s "$work/from-text" "$work/llama-tied" || fault "ids as text give other logits"
[ -z "$(ls "$work" | grep partial)" ] || fault "a partial file is left"

# The same for every number of threads, with packed weights in every arithmetic.
packed=$checkpoints/llama-packed
tensor "$packed/golden.safetensors" input_ids d4 | head -n 9 >"$work/nine.txt"
for arith in int16 f32 bf16; do
    for t in 1 2 3 4; do
        expect 0 '' "$PLEACH" logits "$packed" --ids "$work/nine.txt" -o "$work/t$t" -t $t --arith $arith
        cmp -s "$work/t1" "$work/t$t" || fault "logits with $arith and $t threads differ"
    done
done
# Every level agrees with the reference. The sixth new token is a tie but for rounding.
for level in c avx2 avx512; do
    "$PLEACH" --version --json | grep -q "\"$level\"" || continue
    expect 0 '' "$PLEACH" run "$packed" --cpu $level --arith bf16 -n 5 \
        --ids "$packed/golden.safetensors" --print-ids
    [ "$(cat "$out")" = "$(tensor "$packed/golden.safetensors" greedy d4 | head -n 5 | paste -sd ' ')" ] ||
        fault "llama-packed on $level: greedy ids are $(cat "$out")"
done

# Sampling: seeds repeat, other seeds differ; the edges of the options.
ids=(--ids "$work/ids.txt" --print-ids -n 24)
expect 0 '' "$PLEACH" run "$model" "${ids[@]}"
cp "$out" "$work/greedy"
expect 0 '' "$PLEACH" run "$model" "${ids[@]}" --temp 1 --seed 42
cp "$out" "$work/seed42"
expect 0 '' "$PLEACH" run "$model" "${ids[@]}" --temp 1 --seed 42 -t 1
cmp -s "$out" "$work/seed42" || fault "a seed does not repeat"
expect 0 '' "$PLEACH" run "$model" "${ids[@]}" --temp 1 --seed 43
! cmp -s "$out" "$work/seed42" || fault "another seed gives the same"
expect 0 '' "$PLEACH" run "$model" "${ids[@]}" --temp 1 --top-k 1
cmp -s "$out" "$work/greedy" || fault "top-k 1 is not greedy"
expect 0 '' "$PLEACH" run "$model" "${ids[@]}" --top-k -1 --top-p 0 --min-p 1 --temp 5
expect 0 '' "$PLEACH" run "$model" "${ids[@]}" --repeat-penalty 1.5 --repeat-window 8
! cmp -s "$out" "$work/greedy" || fault "the repetition penalty does nothing"
expect 0 '' "$PLEACH" run "$model" "${ids[@]}" --kv bf16 --ctx 64

# Cache types: packed ones, refused ones, what they take; and a session kept in a file.
packed_kv=$checkpoints/qwen3-qknorm
expect 0 '' "$PLEACH" inspect "$packed_kv" --kv k8v3 --ctx 100
expect_output '^cache: k8v3, 6.25 bits a number, recent 128 tokens in bf16 too, 600 bytes a token, 273.4 kB for 100 tokens$'
mkdir "$work/rwkv"
ln -s "$(realpath "$packed_kv")/model.safetensors" "$work/rwkv"
sed 's/"model_type": *"[^"]*"/"model_type": "rwkv"/; s/Qwen3For/RwkvFor/' \
    "$packed_kv/config.json" >"$work/rwkv/config.json"
expect 0 '' "$PLEACH" inspect "$work/rwkv" --kv k8v3
expect_output '^cache: none: .*RwkvForCausalLM is not supported'
expect 0 '' "$PLEACH" inspect "$packed_kv" --kv k8v3 --kv-recent 0 --ctx 100
expect_output '^cache: k8v3, 6.25 bits a number, 600 bytes a token, 76.8 kB for 100 tokens$'
expect 1 'k8v3: head size 32: a packed cache takes 64, 80' "$PLEACH" run "$model" "${ids[@]}" --kv k8v3
expect 1 'layer 3 in "3:f32", and the model has layers 0 to 2' \
    "$PLEACH" run "$packed_kv" "${ids[@]}" --kv k8v3,3:f32
expect 0 '' "$PLEACH" run "$packed_kv" "${ids[@]}" --kv k8v3
cp "$out" "$work/k8v3"
for time in first second; do
    expect 0 '' "$PLEACH" run "$packed_kv" "${ids[@]}" --kv k8v3 --session "$work/session"
    cmp -s "$out" "$work/k8v3" || fault "the $time run with a session file gives another answer"
done
chmod 600 "$work/session"
expect 0 '' "$PLEACH" run "$packed_kv" "${ids[@]}" --kv k8v3 --session "$work/session"
[ "$(stat -c %a "$work/session")" = 600 ] || fault "a private session file did not stay private"
expect 1 'No such file' "$PLEACH" run "$packed_kv" "${ids[@]}" --session "$work/missing/session"
[ ! -s "$out" ] || fault "an answer before its session file was found to be impossible"
expect 1 'without a name' "$PLEACH" run "$packed_kv" "${ids[@]}" --session ''
expect 1 'no regular file' "$PLEACH" run "$packed_kv" "${ids[@]}" --session "$work"
expect 1 'other cache types: expected k4v4, found k8v3' \
    "$PLEACH" run "$packed_kv" "${ids[@]}" --kv k4v4 --session "$work/session"
expect 0 '' "$PLEACH" run "$packed_kv" --ids "$work/ids.txt" --json -n 4 --kv k8v3 --session "$work/session"
expect_output '"cached_tokens": 39'
expect_output '"types": "k8v3"'
expect 0 '' "$PLEACH" run "$packed_kv" "${ids[@]}" --kv k4v2 --kv-recent 64
expect 0 'warning: k2v2: 2-bit keys: ' "$PLEACH" run "$packed_kv" "${ids[@]}" --kv k2v2
expect 2 '--kv-recent: expected a whole number' "$PLEACH" run "$packed_kv" "${ids[@]}" --kv-recent -1
expect 0 '' "$PLEACH" run "$model" --ids "$work/ids.txt" --json -n 4
expect_output '"new_tokens": 4'
expect_output '"finish": "length"'
expect_output '"prompt_tokens": 40'

# The context ends a generation; a prompt that does not fit is refused.
expect 0 '' "$PLEACH" run "$model" --ids "$work/ids.txt" --print-ids -n 0 --ctx 48 --ignore-end
words=$(wc -w <"$out")
[ "$words" -ge 8 ] && [ "$words" -le 9 ] || fault "a context of 48 leaves $words tokens after 40"
expect 1 'the prompt has 40 tokens and the context holds 39' \
    "$PLEACH" run "$model" --ids "$work/ids.txt" --print-ids --ctx 39

# inspect, verify, bench.
expect 0 '' "$PLEACH" inspect "$packed"
expect_output '^768x512 .*trellis .*axis 1 T 256 L 12 .*model.layers.0.mlp.up_proj'
expect_output '^block matrices '
expect 0 '' "$PLEACH" inspect "$packed" --json
expect_output '"coding": "trellis"'
expect_output '"T": 256'
expect_output '"block_bits":'
for name in llama-tied llama-packed; do
    expect 0 '' "$PLEACH" verify "$checkpoints/$name"
    expect_output 'nothing found$'
    expect 0 '' "$PLEACH" verify "$checkpoints/$name" --json
    expect_output '"findings": \[\]'
done
expect 0 '' "$PLEACH" bench "$model" -r 1 -n 2
expect_output '^prompt    8 .*tokens/s'
expect_output '^generation .*tokens/s'
expect_output '^linear alone .*tokens/s; generation reaches [0-9]'
expect_output '^memory read .*GB/s'
expect 0 '' "$PLEACH" bench "$model" -r 2 -n 2 --ctx 80 -t 1 --json
expect_output '"bytes_per_token": [1-9]'
expect_output '"roof_share": '
expect_output '"linear_share": [0-9]'
! grep -q '"tokens": 512' "$out" || fault "bench measures more than the context holds"

expect 0 '' "$PLEACH" bench "$model" -r 1 -n 2 --ctx 80 -t 1 --streams 3
expect_output '^  1 streams .*tokens/s together'
expect_output '^  3 streams .*tokens/s together; drawn with top-p [0-9]'
expect 0 '' "$PLEACH" bench "$model" -r 1 -n 2 --ctx 2100 -t 1 --streams 1 --json
expect_output '"streams": 1'
expect_output '"prefix": 2000'

for ctx in 4 9; do
    expect 2 "generation needs a context of 10 tokens .*, found $ctx" \
        "$PLEACH" bench "$model" -r 1 -n 2 --ctx $ctx
done
expect 0 '' "$PLEACH" bench "$model" -r 1 -n 2 --ctx 10

# Devices: refused in a line where the build, the machine or the arithmetic has none for them.
expect 1 'device cuda:9999: \(this build has no CUDA\|no NVIDIA GPU\|this machine has\)' \
    "$PLEACH" logits "$packed" --ids "$work/nine.txt" -o "$work/refused" --device cuda:9999
[ ! -e "$work/refused" ] || fault "a refused device left an output"
expect 1 "device cuda: arithmetic bf16 is the processor's" \
    "$PLEACH" logits "$packed" --ids "$work/nine.txt" -o "$work/refused" --device cuda --arith bf16
expect 0 '' "$PLEACH" logits "$packed" --ids "$work/nine.txt" -o "$work/cpu" --device cpu \
    --batch-invariant
expect 0 '' "$PLEACH" logits "$packed" --ids "$work/nine.txt" -o "$work/default"
cmp -s "$work/cpu" "$work/default" || fault "--device cpu differs from the default"

# The crossovers: 2 axes by 3 rates of every arithmetic but int16x2, and what a thread is worth.
expect 0 '' "$PLEACH" bench --tune -r 1 --json
[ "$(grep -c '"register_rows": [1-4]' "$out")" -eq 24 ] || fault "bench --tune: $(cat "$out")"
expect_output '"thread_operations": [1-9]'
expect 0 '' "$PLEACH" bench --tune -r 1 -t 1
expect_output 'thread_operations = [1-9]'
! grep 'sharing a loop' "$out" || fault "one thread shares a loop"

# A weight of NaN is found: 0x7fc0 in bf16 over the last weight.
cp -r "$model" "$work/nan"
size=$(stat -c %s "$work/nan/model.safetensors")
printf '\300\177' | dd of="$work/nan/model.safetensors" bs=1 seek=$((size - 2)) conv=notrunc 2>/dev/null
"$PLEACH" verify "$work/nan" >"$out"
[ $? -eq 1 ] || fault "verify is content with NaN"
[ "$(wc -l <"$out")" -eq 1 ] || fault "verify does not print one finding: $(cat "$out")"
"$PLEACH" verify "$work/nan" --json >"$out"
[ $? -eq 1 ] || fault "verify --json is content with NaN"
expect_output '"finding": "'

# What is not there or not fit.
for c in run verify inspect bench; do
    arguments=()
    [ $c != run ] || arguments=(--ids "$work/ids.txt" --print-ids)
    expect 1 'no-such-model' "$PLEACH" $c "$work/no-such-model" "${arguments[@]}"
    expect 1 "$work" "$PLEACH" $c "$work" "${arguments[@]}"
    expect 1 'ids.txt' "$PLEACH" $c "$work/ids.txt" "${arguments[@]}"
done
expect 1 'no tokenizer' "$PLEACH" run "$model" --ids "$work/ids.txt"
expect 1 '.' "$PLEACH" run "$model" -p hello
expect 1 '.' "$PLEACH" tokenize "$model" hello
expect 1 '.' "$PLEACH" chat "$model"
expect 1 'cannot open /no/ids' "$PLEACH" logits "$model" --ids /no/ids -o "$work/x"
expect 1 '.' "$PLEACH" logits "$model" --ids "$work/ids.txt" -o /no/folder/x
expect 1 'regular file' "$PLEACH" logits "$model" --ids "$work/ids.txt" -o /dev/null
expect 1 'regular file' "$PLEACH" logits "$model" --ids "$work/ids.txt" -o "$work"
expect 1 'replace its own input' "$PLEACH" logits "$model" --ids "$work/ids.txt" -o "$work/../${work##*/}/ids.txt"
cp -r "$model" "$work/own"
expect 1 "model's folder" "$PLEACH" logits "$work/own" --ids "$work/ids.txt" -o "$work/own/model.safetensors"
cmp -s "$model/model.safetensors" "$work/own/model.safetensors" || fault "logits replaced the model"
mkdir "$work/fifo" && cp "$model/config.json" "$work/fifo" && mkfifo "$work/fifo/model.safetensors"
expect 1 'regular file' timeout 20 "$PLEACH" verify "$work/fifo"
expect 1 'expected one I32 tensor' "$PLEACH" logits "$model" --ids "$work/llama-tied" -o "$work/x"
bad_ids() {
    printf "$1" >"$work/bad"
    expect 1 "$2" "$PLEACH" logits "$model" --ids "$work/bad" -o "$work/x"
}
bad_ids '' 'at least one token id'
bad_ids ' , \n' 'at least one token id'
bad_ids '1 2 three' 'expected a token id, found "three"'
bad_ids '1 -2' 'expected a token id, found "-2"'
bad_ids '99999999999' 'expected a token id'
bad_ids '4294967296' 'expected a token id'
bad_ids '1 2 384' '384'
bad_ids '1\0002' 'ids as text'
bad_ids '\377\377\377\377\377\377\377\377{}' 'expected a header'
bad_ids '\002\0\0\0\0\0\0\0{}' 'expected one I32 tensor'
bad_ids '\002\0\0\0\0\0\0\0{]' 'malformed header'
header='{"ids":{"dtype":"I32","shape":[1],"data_offsets":[0,9]}}'
bad_ids "\\$(printf %o ${#header})\0\0\0\0\0\0\0${header}abcd" 'expected offsets'
header='{"ids":{"dtype":"I32","shape":[1],"data_offsets":[0,4]}}'
bad_ids "\\$(printf %o ${#header})\0\0\0\0\0\0\0${header}\377\377\377\377" 'found -1'
[ ! -e "$work/x" ] && [ ! -e "$work/x.partial" ] || fault "a failed logits run leaves a file"

finish
