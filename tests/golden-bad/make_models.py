#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the model files that must be refused, and models.tsv: file, what the refusal must say.
test_golden_bad.c opens each and compares. Needs Python alone."""
import json
import pathlib
import struct

HERE = pathlib.Path(__file__).parent
expected = []


def put(path, data, message):
    target = HERE / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)
    expected.append((path, message))


# ---- safetensors ---------------------------------------------------------------------------------

def raw(header, data=b"", length=None):
    return struct.pack("<Q", len(header) if length is None else length) + header + data


def tensors(entries, data=b""):
    return raw(json.dumps(entries, separators=(",", ":")).encode(), data)


def entry(kind, shape, begin, end):
    return {"dtype": kind, "shape": shape, "data_offsets": [begin, end]}


def bad_safetensors(name, data, message):
    put(f"safetensors/{name}.safetensors", data, message)


bad_safetensors("empty", b"", "too short")
bad_safetensors("length-max", raw(b"{}", length=2**64 - 1), "expected at most 104857600")
bad_safetensors("length-half", raw(b"{}", length=2**63), "expected at most 104857600")
bad_safetensors("length-101mb", raw(b"{}", length=101 << 20), "expected at most 104857600")
bad_safetensors("length-past-end", raw(b"{}", length=3), "but only 2 bytes follow")
bad_safetensors("no-object", raw(b"[1,2]"), "does not begin with '{'")
bad_safetensors("no-utf8", raw(b'{"\xff\xfe":1}'), "malformed JSON")
bad_safetensors("deep", raw(b'{"a":' + b"[" * 4096), "maximum parsing depth")
bad_safetensors("same-name-twice", raw(b'{"a":1,"a":2}'), "duplicate")
bad_safetensors("data-too-short", tensors({"w": entry("F32", [1000, 1000], 0, 4)}, bytes(4)),
                "takes 4000000 bytes, but data_offsets cover 4")
bad_safetensors("shape-overflows", tensors({"w": entry("F32", [2**32, 2**32], 0, 4)}, bytes(4)),
                "shape [4294967296, 4294967296] is too large")
bad_safetensors("five-dims", tensors({"w": entry("F32", [1] * 5, 0, 4)}, bytes(4)), "at most 4")
bad_safetensors("negative", tensors({"w": entry("F32", [-1], 0, 4)}, bytes(4)), "entry 0 is not")
bad_safetensors("backwards", tensors({"w": entry("F32", [1], 4, 0)}, bytes(4)), "not a range")
bad_safetensors("truncated", tensors({"w": entry("F32", [4], 0, 16)}, bytes(12)), "truncated?")
bad_safetensors("trailing", tensors({"w": entry("F32", [1], 0, 4)}, bytes(5)),
                "but 5 bytes follow the header")
bad_safetensors("overlap", tensors({"a": entry("F32", [2], 0, 8), "b": entry("F32", [2], 4, 12)},
                                   bytes(12)), "tensor b overlaps")
bad_safetensors("hole", tensors({"a": entry("F32", [1], 0, 4), "b": entry("F32", [1], 8, 12)},
                                bytes(12)), "tensor b leaves a hole")
bad_safetensors("unknown-type", tensors({"w": entry("F6_E3M2", [1], 0, 1)}, bytes(1)),
                "dtype 'F6_E3M2' is not supported")

# ---- GGUF ----------------------------------------------------------------------------------------

U8, U16, U32, STRING, ARRAY = 0, 2, 4, 8, 9
I8, Q4_0, IQ4_XS, F32 = 24, 2, 23, 0


def string(s):
    return struct.pack("<Q", len(s)) + s.encode()


def value(key, kind, body):
    return string(key) + struct.pack("<I", kind) + body


def tensor(name, kind, dims, offset=0):
    return string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def gguf(values=(), tensors=(), data=0, version=3, n_values=None, n_tensors=None):
    head = b"GGUF" + struct.pack("<IQQ", version,
                                 len(tensors) if n_tensors is None else n_tensors,
                                 len(values) if n_values is None else n_values)
    body = head + b"".join(values) + b"".join(tensors)
    return body + bytes(-len(body) % 32 + data) if tensors else body


def bad_gguf(name, data, message):
    put(f"gguf/{name}.gguf", data, message)


bad_gguf("empty", b"", "expected a folder or a GGUF file")
bad_gguf("version-1", gguf(version=1), "GGUF version 1 is not supported")
bad_gguf("big-endian", gguf(version=3 << 24), "big-endian")
bad_gguf("key-of-2-to-48", gguf(n_values=1) + struct.pack("<Q", 2**48), "metadata entries cannot be")
bad_gguf("key-past-end", gguf(n_values=1) + struct.pack("<QQ", 2**48, 0), "a metadata key needs")
bad_gguf("array-of-500-million",
         gguf([value("a", ARRAY, struct.pack("<IQ", U32, 500_000_000))]), "500000000 metadata a")
bad_gguf("strings-past-end",
         gguf([value("a", ARRAY, struct.pack("<IQ", STRING, 2) + string("x") + struct.pack("<Q", 9))]),
         "metadata a needs 9 bytes")
bad_gguf("nested", gguf([value("a", ARRAY, struct.pack("<IQ", ARRAY, 1) * 12)]),
         "nests arrays too deeply")
bad_gguf("value-type-13", gguf([value("a", 13, bytes(8))]), "metadata a has unknown type 13")
bad_gguf("key-twice", gguf([value("a", U8, b"1")] * 2), "metadata a occurs twice")
bad_gguf("tensors-overflow", gguf(n_tensors=2**64 // 400), "tensors cannot be in")
bad_gguf("alignment-0", gguf([value("general.alignment", U32, bytes(4))]),
         "general.alignment is not a power of two")
bad_gguf("split", gguf([value("split.count", U16, b"\2\0")]), "one of 2 split GGUF files")
bad_gguf("elements-overflow", gguf([], [tensor("w", I8, [2**63 - 1, 2])], 32),
         "tensor w needs 18446744073709551614 bytes")
bad_gguf("bytes-overflow", gguf([], [tensor("w", F32, [2**62, 2])], 32), "is too large")
bad_gguf("dimension-0", gguf([], [tensor("w", F32, [0, 8])], 32), "tensor w has a dimension of 0")
bad_gguf("half-a-block", gguf([], [tensor("w", Q4_0, [33])], 64), "no whole blocks of Q4_0")
bad_gguf("type-iq4-xs", gguf([], [tensor("w", IQ4_XS, [256])], 160),
         "tensor w has type IQ4_XS (23), which is not supported")
bad_gguf("type-1000", gguf([], [tensor("w", 1000, [8])], 32), "type unknown (1000)")
bad_gguf("five-dims", gguf([], [tensor("w", F32, [1] * 5)], 32), "5 dimensions, expected 1 to 4")
bad_gguf("overlap", gguf([], [tensor("a", F32, [16]), tensor("b", F32, [16], 32)], 96),
         "tensors a and b overlap")
bad_gguf("truncated", gguf([], [tensor("w", F32, [16])], 32), "truncated?")
bad_gguf("unaligned", gguf([], [tensor("w", F32, [8], 4)], 64), "no multiple of 32")
bad_gguf("tensor-twice", gguf([], [tensor("w", F32, [8]), tensor("w", F32, [8], 32)], 64),
         "tensor w occurs twice")
bad_gguf("no-architecture", gguf([], [tensor("w", F32, [8])], 32), "general.architecture is missing")
bad_gguf("architecture", gguf([value("general.architecture", STRING, string("rwkv"))],
                              [tensor("w", F32, [8])], 32), "architecture rwkv is not supported")
bad_gguf("experts", gguf([value("general.architecture", STRING, string("qwen2"))] +
                         [value("qwen2." + key, U32, struct.pack("<I", 8)) for key in (
                             "block_count", "embedding_length", "feed_forward_length",
                             "attention.head_count", "context_length", "attention.key_length",
                             "attention.value_length", "expert_count")],
                         [tensor("w", F32, [8])], 32), "8 experts are not supported in qwen2")

# ---- folders -------------------------------------------------------------------------------------

LLAMA = {"model_type": "llama", "vocab_size": 4, "hidden_size": 8, "intermediate_size": 8,
         "num_hidden_layers": 1, "num_attention_heads": 2}


def bad_folder(name, config, files, message):
    path = f"folders/{name}"
    (HERE / path).mkdir(parents=True, exist_ok=True)
    for file, content in files.items():
        (HERE / path / file).write_bytes(content)
    if config is not None:
        text = config if isinstance(config, str) else json.dumps(config, separators=(",", ":"))
        (HERE / path / "config.json").write_text(text)
    expected.append((path, message))


EMBED = tensors({"model.embed_tokens.weight": entry("U8", [4, 8], 0, 32)}, bytes(32))
ONE = tensors({"a": entry("U8", [4], 0, 4)}, bytes(4))


def index(**files):
    return json.dumps({"weight_map": files}).encode()


bad_folder("no-weights", LLAMA, {}, "neither model.safetensors nor model.safetensors.index.json")
bad_folder("shard-missing", LLAMA, {"model-1.safetensors": ONE, "model.safetensors.index.json": index(
    a="model-1.safetensors", b="model-2.safetensors")}, "model-2.safetensors")
bad_folder("shard-lacks-tensor", LLAMA, {"model-1.safetensors": ONE,
                                         "model.safetensors.index.json": index(b="model-1.safetensors")},
           "tensor b is not in model-1.safetensors")
bad_folder("shard-elsewhere", LLAMA, {"model.safetensors.index.json": index(a="../x.safetensors")},
           "../x.safetensors is not the name")
bad_folder("config-cut", '{"model_type":', {"model.safetensors": ONE}, "config.json: malformed JSON")
bad_folder("config-absent", None, {"model.safetensors": ONE}, "config.json is missing")
bad_folder("embedding-empty", LLAMA, {"model.safetensors": tensors(
    {"model.embed_tokens.weight": entry("F32", [0, 8], 0, 0)})}, "empty matrix [0, 8]")
bad_folder("embedding-no-number", LLAMA, {"model.safetensors": EMBED}, "expected a matrix of numbers")
bad_folder("layer-absent", LLAMA, {"model.safetensors": tensors(
    {"model.embed_tokens.weight": entry("F32", [4, 8], 0, 128)}, bytes(128))},
    "tensor model.layers.0.self_attn.q_proj.weight is missing")
bad_folder("quant-gptq", LLAMA | {"quantization_config": {"quant_method": "gptq"}},
           {"model.safetensors": ONE}, "quant_method gptq is not supported")
bad_folder("fp8-without-scales",
           LLAMA | {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}},
           {"model.safetensors": tensors({"m.weight": entry("F8_E4M3", [2, 2], 0, 4)}, bytes(4))},
           "tensor m.weight_scale_inv is missing")


def trellis_folder(name, shape, message, **more):
    size = 4
    for n in shape:
        size *= n
    coding = {"L": 12, "code": "1mad", "axis": 1} | more
    module = {"bits": 4, "group_size": 32, "mode": "trellis", "trellis": coding}
    bad_folder(name, {"quantization": {"m": module}}, {"model.safetensors": tensors(
        {"m.weight": entry("U32", shape, 0, size), "m.scales": entry("F16", [2], size, size + 4)},
        bytes(size + 4))}, message)


trellis_folder("codes-flat", [16], "m.weight is U32 [16], expected U32 [2, words")
trellis_folder("codes-transposed", [8, 2], "m.weight is U32 [8, 2], expected U32 [2, words")
trellis_folder("codes-of-odd-length", [2, 7], "m.weight is U32 [2, 7], expected U32 [2, words")
trellis_folder("codes-interleaved", [1, 2, 8], "m.weight: ")
trellis_folder("code-unknown", [2, 8], "trellis.code 3inst is not supported", code="3inst")
trellis_folder("key-unknown", [2, 8], "trellis.lut is not supported", lut=1)
trellis_folder("width-too-large", [2, 8], "does not fit width 65", width=65)

(HERE / "models.tsv").write_text("".join(f"{p}\t{m}\n" for p, m in expected))
