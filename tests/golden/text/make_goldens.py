# SPDX-License-Identifier: Apache-2.0
"""Makes what tests/unit/test_tokenizer.c compares with: three small tokenizers trained by the
`tokenizers` package, and the ids that package gives for torture.txt under many settings.

    python make_goldens.py TRAINING_TEXT     (trains anew, then writes tokenizer_cases.json)
    python make_goldens.py                   (keeps the trained tokenizers)

Each case names a tokenizer, a patch of its JSON, and flags; its result is the number of ids and
their FNV-1a hash for every line of torture.txt and for the whole. tokenizers 0.23.3.

Where special tokens are not to be matched, their pieces are hidden from the reference's Unigram
model, which would otherwise let text become them; that it never does is a rule of ours."""
import base64, copy, json, struct, sys
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|eot_id|>",
           "<|start_header_id|>", "<|end_header_id|>", "<bos>", "<eos>", "<start_of_turn>",
           "<end_of_turn>", "<s>", "</s>", "[INST]", "[/INST]"]
BYTES = ["<0x%02X>" % i for i in range(256)]


def train(path):
    text = open(path, encoding="utf-8").read() + open("torture.txt", encoding="utf-8").read() * 2
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(text.splitlines(), trainers.BpeTrainer(
        vocab_size=1000, special_tokens=CONTROL, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    t.add_tokens(["<think>", "</think>"])
    t.save("byte_bpe.json", pretty=False)

    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=True)
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(),
                                   decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    t.train_from_iterator(text.splitlines(), trainers.BpeTrainer(
        vocab_size=1200, special_tokens=["<unk>", "<s>", "</s>"] + BYTES, show_progress=False,
        limit_alphabet=150))
    j = json.loads(t.to_str())
    j["added_tokens"] = [a for a in j["added_tokens"] if not a["content"].startswith("<0x")]
    json.dump(j, open("spm_bpe.json", "w"), ensure_ascii=False, separators=(",", ":"))

    t = Tokenizer(models.Unigram())
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    t.decoder = decoders.Metaspace()
    t.train_from_iterator(text.splitlines(), trainers.UnigramTrainer(
        vocab_size=1000, special_tokens=["<unk>", "<s>", "</s>"], unk_token="<unk>",
        show_progress=False, max_piece_length=16))
    j = json.loads(t.to_str())
    known = {p for p, _ in j["model"]["vocab"]}
    j["model"]["vocab"] = [[p, round(s, 6)] for p, s in j["model"]["vocab"]
                           if len(p) > 1 or ord(p) < 0x250 or p == "▁"]
    j["model"]["vocab"] += [[b, 0.0] for b in BYTES if b not in known]
    j["model"]["byte_fallback"] = True
    json.dump(j, open("unigram.json", "w"), ensure_ascii=False, separators=(",", ":"))


def charsmap(pairs):
    """A precompiled map in sentencepiece's format; a plain double array, slowly built."""
    strings, trie, units, used = b"", {}, {}, set()
    for key, value in pairs:
        node = trie
        for byte in key.encode():
            node = node.setdefault(byte, {})
        node[None] = len(strings)
        strings += value.encode() + b"\0"

    def place(node, at):
        """Children of the unit `at` go to offset ^ label; the value to offset ^ 0."""
        labels = [0 if k is None else k for k in node]
        base = 256
        while any((base ^ l) in used or base ^ at >= 1 << 21 for l in labels):
            base += 1
        used.update(base ^ l for l in labels)
        units[at] = units.get(at, 0) | (base ^ at) << 10 | (0x100 if None in node else 0)
        for k, child in node.items():
            if k is None:
                units[base] = 0x80000000 | child
            else:
                units[base ^ k] = k
                place(child, base ^ k)

    used.add(0)
    place(trie, 0)
    raw = b"".join(struct.pack("<I", units.get(i, 0)) for i in range(max(units) // 256 * 256 + 256))
    return base64.b64encode(struct.pack("<I", len(raw)) + raw + strings).decode()


BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
BYTES_ONLY = dict(BYTE_LEVEL, use_regex=False)


def sequence(*parts):
    return {"type": "Sequence", "pretokenizers": list(parts)}


def split(regex=None, behavior="Isolated", invert=False, string=None):
    pattern = {"Regex": regex} if regex else {"String": string}
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}


def added(content, **options):
    return dict({"id": -1, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
                 "normalized": True, "special": False}, **options)


def metaspace(scheme, do_split):
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": do_split}


UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
ENDINGS, TAIL = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)", r"\s*[\r\n]+|\s+(?!\S)|\s+"
PATTERNS = {
    "llama3": ENDINGS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + TAIL,
    "qwen2": ENDINGS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + TAIL,
    "gpt4o": fr"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{ENDINGS}?|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+"
             fr"{LOWER}*{ENDINGS}?|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|" + TAIL,
    "deepseek": "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?"
                "[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|" + TAIL,
    "possessive": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
    "words": r"\w+|\d+|[^\w\s]+|\s", "not_words": r"\W+|\S", "lines": r"^\S+|\S+$|.", "empty": r"x*",
    "interval": r"\p{L}{,3}", "code_points": "[\\u00e0-\\u00ff]+|\\x41|[\u4e00-\u9fa5\u3040-\u30ff]+",
}


def cases():
    b, s, u = "byte_bpe", "spm_bpe", "unigram"
    yield b, "plain", {}
    yield s, "plain", {}
    yield u, "plain", {}
    yield b, "special", {}, "special"
    yield s, "special", {}, "special"
    for name, pattern in PATTERNS.items():
        yield b, "pattern " + name, {"pre_tokenizer": sequence(split(pattern), BYTES_ONLY)}
    yield b, "pattern deepseek, three", {"pre_tokenizer": sequence(
        split(r"\p{N}{1,3}"), split("[一-龥぀-ゟ゠-ヿ]+"), split(PATTERNS["deepseek"]), BYTES_ONLY)}
    yield b, "ignore_merges", {"model": {"ignore_merges": True}, "pre_tokenizer": sequence(
        split(PATTERNS["llama3"]), BYTES_ONLY)}
    for behavior in ("Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        for invert in (False, True):
            yield b, f"split {behavior} {invert}", {"pre_tokenizer": sequence(
                split(r"[aeiou ]", behavior, invert), BYTES_ONLY)}
        yield b, "split string " + behavior, {"pre_tokenizer": sequence(
            split(None, behavior, string="."), BYTES_ONLY)}
        yield b, "punctuation " + behavior, {"pre_tokenizer": sequence(
            {"type": "Punctuation", "behavior": behavior}, BYTE_LEVEL)}
    for single in (False, True):
        yield b, f"digits {single}", {"pre_tokenizer": sequence(
            {"type": "Digits", "individual_digits": single}, BYTE_LEVEL)}
    yield b, "prefix space", {"pre_tokenizer": dict(BYTE_LEVEL, add_prefix_space=True)}
    yield b, "prefix space, parts", {"pre_tokenizer": sequence(
        split(r"\p{L}+"), dict(BYTE_LEVEL, add_prefix_space=True))}, "special"
    yield b, "Whitespace", {"pre_tokenizer": sequence({"type": "Whitespace"}, BYTES_ONLY)}
    yield b, "WhitespaceSplit", {"pre_tokenizer": sequence({"type": "WhitespaceSplit"}, BYTES_ONLY)}
    for form in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase"):
        yield b, form, {"normalizer": {"type": form}}
    for left in (False, True):
        yield b, f"Strip {left}", {"normalizer": {"type": "Strip", "strip_left": left,
                                                  "strip_right": not left}}
    yield b, "Replace", {"normalizer": {"type": "Sequence", "normalizers": [
        {"type": "Replace", "pattern": {"Regex": r"\s{2,}|[aeiou]\p{L}"}, "content": "<>"},
        {"type": "Replace", "pattern": {"String": "."}, "content": ""}, {"type": "NFKC"},
        {"type": "Prepend", "prepend": "> "}]}}
    tokens = [added("the", single_word=True), added("fox", lstrip=True, normalized=False),
              added("<|im_end|>", rstrip=True, special=True, normalized=False),
              added("over the", lstrip=True, rstrip=True), added("...."),
              added(".....", normalized=False), added("HELLO"), added("Café"),
              added("jumps", special=True, single_word=True), added("▁▁", rstrip=True)]
    for form in (None, "NFD", "Lowercase"):
        for flag in ("", "special"):
            yield b, f"added {form}", {"normalizer": form and {"type": form},
                                       "added_tokens": tokens}, flag
    template = {"type": "TemplateProcessing", "pair": [], "single": [
        {"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
        {"SpecialToken": {"id": "</s>", "type_id": 0}}], "special_tokens": {
            "<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]},
            "</s>": {"id": "</s>", "ids": [2], "tokens": ["</s>"]}}}
    for flag in ("", "bos"):
        yield s, "template", {"post_processor": {"type": "Sequence", "processors": [
            {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False,
             "use_regex": True}, template]}}, flag
    for scheme in ("always", "first", "never"):
        for do_split in (False, True):
            yield s, f"{scheme} {do_split}", {"pre_tokenizer": metaspace(scheme, do_split)}, "special"
            yield u, f"{scheme} {do_split}", {"pre_tokenizer": metaspace(scheme, do_split)}, "special"
    yield s, "legacy", {"pre_tokenizer": None, "normalizer": {"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "▁"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]}}, "special"
    yield s, "WhitespaceSplit", {"pre_tokenizer": sequence({"type": "WhitespaceSplit"},
                                                           metaspace("always", True))}
    for fuse in (False, True):
        yield s, f"unknown {fuse}", {"model": {"byte_fallback": False, "fuse_unk": fuse}}
    yield s, "no unknown", {"model": {"byte_fallback": False, "unk_token": None}}
    yield u, "unknown", {"model": {"byte_fallback": False}}
    yield u, "charsmap", {"normalizer": {"type": "Precompiled", "precompiled_charsmap": charsmap(
        [("ﬁ", "fi"), ("é", "e"), ("e\u0301", "e"), ("Å", "A"), ("１", "1"), ("２", "2"), ("\u00a0", " "),
         ("\u3000", " "), ("\t", " "), ("㌔", "キロ"), ("㈜", "(주)"), ("Ⅷ", "VIII"), ("ﷺ", "صلى"),
         ("カ\u3099", "ガ"), ("\u200b", ""), ("ab", "X"), ("abc", "Y")])}}
    yield b, "pairs", {"model": {"merges": "pairs"}}


def fnv(ids):
    h = 2166136261
    for byte in b"".join(struct.pack("<i", i) for i in ids):
        h = (h ^ byte) * 16777619 & 0xffffffff
    return [len(ids), h]


def apply(tokenizer, patch):
    j = copy.deepcopy(tokenizer)
    for key, value in patch.items():
        if key == "model":
            for k, v in value.items():
                if v == "pairs":
                    v = [m.split(" ") if isinstance(m, str) else m for m in j["model"]["merges"]]
                j["model"][k] = v
        elif key == "added_tokens":
            used = {a["content"]: a["id"] for a in j[key]} | j["model"]["vocab"]
            for a in value:  # the reference takes no others
                a["id"] = used.setdefault(a["content"], max(used.values()) + 1)
            j[key] = j[key] + value
        else:
            j[key] = value
    return j


def strings(j):
    """Merges as strings, the older form."""
    if "merges" in j["model"]:
        j["model"]["merges"] = [m if isinstance(m, str) else " ".join(m) for m in j["model"]["merges"]]
    return j


def hide_special(j):
    special = {a["content"] for a in j["added_tokens"] if a["special"]}
    if j["model"]["type"] == "Unigram":
        j["model"]["vocab"] = [["\U0010fffd" + p if p in special else p, s]
                               for p, s in j["model"]["vocab"]]
    return j


def main():
    if len(sys.argv) > 1:
        train(sys.argv[1])
    names = ("byte_bpe", "spm_bpe", "unigram")
    files = {n: strings(json.load(open(n + ".json", encoding="utf-8"))) for n in names}
    for n in names:
        json.dump(files[n], open(n + ".json", "w", encoding="utf-8"), ensure_ascii=False,
                  separators=(",", ":"))
    text = open("torture.txt", encoding="utf-8", newline="").read()
    out = []
    for base, name, patch, *flags in cases():
        flags = "".join(flags)
        patched = apply(files[base], patch)
        if "special" not in flags:
            patched = hide_special(patched)
        t = Tokenizer.from_str(json.dumps(patched))
        t.encode_special_tokens = "special" not in flags
        encode = lambda s: t.encode(s, add_special_tokens="bos" in flags).ids
        case = {"tokenizer": base, "name": name, "patch": patch, "flags": flags,
                "lines": [fnv(encode(l)) for l in text.split("\n")], "whole": fnv(encode(text))}
        if name == "plain":
            case["ids"] = encode(text)
        out.append(case)
    with open("tokenizer_cases.json", "w", encoding="utf-8") as f:
        f.write("[\n" + ",\n".join(json.dumps(c, ensure_ascii=False, separators=(",", ":")) for c in out) + "\n]\n")


main()
