# SPDX-License-Identifier: Apache-2.0
"""Safetensors files for the scripts beside: tensors as numpy arrays, bf16 as its bits."""
import json
import struct

import numpy as np

DTYPES = {"F64": "<f8", "F32": "<f4", "U32": "<u4", "BF16": "<u2", "F16": "<f2", "I8": "i1",
          "U8": "u1"}


def read(path):
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    meta = header.pop("__metadata__")
    tensors = {}
    for name, t in header.items():
        begin, end = (8 + size + o for o in t["data_offsets"])
        tensors[name] = np.frombuffer(data[begin:end], DTYPES[t["dtype"]]).reshape(t["shape"])
    return tensors, meta


def write(path, tensors, meta):
    header, body = {"__metadata__": meta}, b""
    for name, (dtype, array) in tensors.items():
        data = np.ascontiguousarray(array, DTYPES[dtype]).tobytes()
        header[name] = {"dtype": dtype, "shape": list(array.shape),
                        "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)
