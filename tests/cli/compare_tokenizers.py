# SPDX-License-Identifier: Apache-2.0
"""compare_tokenizers.py PLEACH GGUF FOLDER TEXT: `pleach tokenize GGUF` against the `tokenizers`
package, on a tokenizer built here from the GGUF file's lists and on the one in FOLDER."""
import json, subprocess, sys
from gguf import GGUFReader
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

CONTROL = 3


def from_gguf(path):
    fields = GGUFReader(path).fields
    get = lambda key: fields["tokenizer.ggml." + key].contents()
    tokens, types = get("tokens"), get("token_type")
    assert get("pre") == "smollm"
    t = Tokenizer(models.BPE(vocab={s: i for i, s in enumerate(tokens)},
                             merges=[tuple(m.split(" ")) for m in get("merges")]))
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False)])
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens([AddedToken(s, normalized=False, special=True)
                          for s, kind in zip(tokens, types) if kind == CONTROL])
    return t


def main():
    pleach, gguf, folder, path = sys.argv[1:]
    text = open(path, encoding="utf-8", newline="").read()
    for name, t in (("built", from_gguf(gguf)),
                    ("written", Tokenizer.from_file(folder + "/tokenizer.json"))):
        for special in (False, True):
            t.encode_special_tokens = not special
            want = t.encode(text, add_special_tokens=False).ids
            out = subprocess.run([pleach, "tokenize", gguf, "--file", path] +
                                 ["--special"] * special, check=True, capture_output=True)
            got = [int(i) for i in out.stdout.split()]
            if got != want:
                at = next(i for i, (a, b) in enumerate(zip(got + [-1], want + [-1])) if a != b)
                sys.exit(f"{name}, special {special}: token {at}: {got[at:at + 5]}, not "
                         f"{want[at:at + 5]}, after {t.decode(want[:at])[-40:]!r}")
            print(f"{name}, special {special}: {len(got)} ids are the same")
    config = json.load(open(folder + "/tokenizer_config.json", encoding="utf-8"))
    assert config["bos_token"] == "<|im_start|>" and "<|im_start|>system" in config["chat_template"]


main()
