# SPDX-License-Identifier: Apache-2.0
"""Writes torture.txt: one line (or a few) for each thing that tokenizers get wrong."""
import unicodedata

latin = "Hello world! Café déjà vu — 123 😊 naïve façade Ångström Straße ŒUVRE ﬁn ﬀ ǅ ŉ ẞ İstanbul ıi"
lines = [
    "Hello, world! I'm, you're, WE'LL, they'Ve, it'D, O'Neill's, 'tis, 's 't 'rett 'ſ",
    unicodedata.normalize("NFC", latin), unicodedata.normalize("NFD", latin),
    "Z\u0351\u036b\u0343\u036a\u0302\u0363\u0313a\u0300\u0316\u0301\u0317l\u0328\u0308go q\u0307\u0323 q\u0323\u0307 \u1e0b\u0323",
    "\u212b \u2126 \u00c5 \uf900 \u2000x\u2001y \u0958 \u0344 \u1fed a\u0315\u0300\u05ae\u0062",
    "한국어 텍스트 \u1112\u1161\u11ab\u1100\u1173\u11af ㈜ ｶﾞｷﾞ ﾊﾟ カ\u3099 漢字かな交じり文。「括弧」、１２３４ ㌔ ①②③ Ⅷ",
    "中文没有空格，标点符号！简体與繁體。𠮷野家 𝒜𝓑𝔠 ９９％ 〇一二",
    "Привет, мир! Ёлка ёлка й й Ѐ ѝ Українська ґ ї",
    "Ελληνικά ΐ ΰ ᾳ Σίσυφος ΑΣ", "עִבְרִית שָׁלוֹם \u202bimbedded\u202c \u200frtl", "العَرَبِيَّة ١٢٣ ﷺ ﻻ لا \u061c",
    "हिन्दी क्षत्रिय क़ १२३ বাংলা தமிழ் ไทยไม่มีช่องว่าง ၁၂၃ မြန်မာ ខ្មែរ བོད་ཡིག",
    "👨‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇫🇷🇩 👍🏽👍🏿 ❤️ ☺︎ 1️⃣ 🧑🏻‍🚀 🦙.cpp 🫠 😀😀😀😀😀😀😀😀",
    "zero\u200bwidth\u200cjoin\u200dword\u2060joiner\ufeffbom soft\u00adhyphen \u180e mongolian\u180evowel",
    "space\u00a0nbsp\u2003em\u2009thin\u202fnarrow\u3000wide\u1680ogham\u205fmath\u0085nel\u2028line\u2029para",
    "tab\ttab\t\ttab \t mixed\t ", "trailing spaces   ", "    leading spaces", " one", "  two", "   three", "",
    "", "CRLF line\r\nnext\r\n\r\nlone\rreturn", "a\u0001b\u0002\u001f\u007fc\u0080\u009f \x1b[31mred\x1b[0m",
    "0 1 12 123 1234 12345 1234567890 3.14159 1,000,000 -5 +7 1e-10 0xDEADBEEF ½ ⅔ x² H₂O 10^9 ٣٤ ४५ 𝟘𝟙",
    "#include <stdio.h>", "int main(void) {", "\tfor (int i = 0; i < 10; ++i) { printf(\"%d\\n\", a[i]); }",
    "        return x != y && z || !(w >= 0) ? foo->bar : baz::qux<T>{};", "}", "def f(x, *args, **kw): return {'a': [1,2], \"b\": None}",
    "https://example.org/a/b?c=d&e=%20f#g user.name+tag@mail.example.co.uk C:\\Windows\\System32 ~/bin/sh",
    "$x = $$y; \\frac{a}{b} \\\\ @decorator ### *** --- ___ === <<<>>> /* */ // ;; `code` ``` |a|b|",
    "“quotes” ‘single’ «guillemets» „low“ … – — ‒ ‐ ′ ″ ¿qué? ¡sí! © ® ™ § ¶ † ‡ • · € £ ¥ ₹ ₿ ° ± × ÷ ≠ ≤ ∞ ∑ √ ∫ ← ↑ → ⇒ ■ ☃ ♠",
    "_under_score_ __init__ camelCaseWords PascalCase SCREAMING_CASE kebab-case a_1_b2 x1y2z3 iPhone15Pro v1.2.3-rc4",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "................................................................................................",
    "x" + " " * 70 + "y", "\n" * 9 + "after newlines", "99999999999999999999999999999999999999999999999999",
    "漢" * 40, "Z" * 100 + ". 漢", "e" + "\u0301" * 40, "\u0316\u0301" * 30, "hahahahahahahahahahahahaha", "😂" * 20,
    "<|im_start|>system\nobey<|im_end|> <s> </s> <unk> <pad> <0x41> <|endoftext|> [INST] x [/INST] <start_of_turn>",
    "▁metaspace ▁▁ literal ▁ Ġbyte Ċ letters", "\ufffd replacement \ufffe\uffff \ue000 private \U000e0001 tag \U0010ffff last",
    "word" * 30, "The quick brown fox jumps over the lazy dog. " * 3, "no newline at the end  ",
]
with open("torture.txt", "w", encoding="utf-8", newline="") as f:
    f.write("\n".join(lines))
