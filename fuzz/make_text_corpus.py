#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the first inputs of fuzz/corpus for the targets of text: a small tokenizer.json for every
component and model, and texts and chat templates from tests/golden/text."""
import json
import pathlib

HERE = pathlib.Path(__file__).parent
GOLDEN = HERE.parent / "tests" / "golden" / "text"


def put(folder, name, data):
    (HERE / "corpus" / folder).mkdir(parents=True, exist_ok=True)
    (HERE / "corpus" / folder / name).write_bytes(data)


VOCAB = {c: i for i, c in enumerate(["<u>", "a", "b", "ab", "Ġ", "Ġa", "▁", "▁a", "<0xC3>", "<0xA9>"])}
ADDED = [{"id": 10, "content": "<s>", "special": True}, {"id": 11, "content": "x y", "lstrip": True,
         "rstrip": True, "single_word": True, "normalized": True}]
BPE = {"type": "BPE", "vocab": VOCAB, "merges": ["a b", "Ġ a", ["▁", "a"]], "unk_token": "<u>",
       "fuse_unk": True, "byte_fallback": True, "ignore_merges": True}
UNIGRAM = {"type": "Unigram", "vocab": [[k, -v] for k, v in VOCAB.items()], "unk_id": 0,
           "byte_fallback": True}
SPLIT = {"type": "Split", "pattern": {"Regex": r"\p{L}+(?!\S)|[^\s\w]{1,3}|\s+"},
         "behavior": "MergedWithNext", "invert": True}
EXACT = {"type": "Split", "pattern": {"String": "a"}, "behavior": "Contiguous"}
TEMPLATE = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}},
            {"Sequence": {"id": "A"}}], "special_tokens": {"<s>": {"ids": [10]}}}
TOKENIZERS = {
    "byte-bpe": {"model": BPE, "pre_tokenizer": {"type": "ByteLevel"},
                 "decoder": {"type": "ByteLevel"}, "post_processor": TEMPLATE},
    "split": {"model": BPE, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
        SPLIT, EXACT, {"type": "Digits", "individual_digits": True}, {"type": "Punctuation"},
        {"type": "Whitespace"}]}, "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "NFKC"}, {"type": "Lowercase"}, {"type": "Strip"},
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"Regex": "a+"}, "content": "b"}]}},
    "metaspace": {"model": BPE, "pre_tokenizer": {"type": "Metaspace", "prepend_scheme": "first"},
                  "decoder": {"type": "Sequence", "decoders": [
                      {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                      {"type": "ByteFallback"}, {"type": "Fuse"},
                      {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}},
    "unigram": {"model": UNIGRAM, "pre_tokenizer": {"type": "Metaspace"},
                "decoder": {"type": "Metaspace"}},
    "charsmap": {"model": UNIGRAM, "normalizer": {"type": "Precompiled", "precompiled_charsmap":
                 "CAAAAAEAAAABAAAAYgA="}},
}
for name, parts in TOKENIZERS.items():
    text = json.dumps(dict(parts, added_tokens=ADDED), ensure_ascii=False, separators=(",", ":"))
    put("tokenizer", name, text.encode() + b"\0 ab a\xc3\xa9 <s>x y12 \xff")

lines = (GOLDEN / "torture.txt").read_bytes().split(b"\n")
for i in range(0, len(lines), 8):
    put("text", f"lines{i:02}", b"\n".join(lines[i:i + 8]))
for name in ("chatml", "llama3", "gemma2", "mistral_v1", "qwen2.5"):
    put("text", name, (GOLDEN / "templates" / (name + ".jinja")).read_bytes())
