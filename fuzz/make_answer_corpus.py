#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the first inputs of fuzz/corpus/answer: calls in every style, with cuts and without."""
import pathlib

HERE = pathlib.Path(__file__).parent / "corpus" / "answer"
NONE, HERMES, XML, LLAMA, MISTRAL = range(5)
REASONING, INSIDE, STOP = 8, 16, 32

TEXTS = {
    "plain": (NONE, "plain text 🦙 \n\n\n STOP"),
    "stops": (NONE + STOP, "a STO ST STOP and more"),
    "reasoning": (HERMES + REASONING, "<think>\nwhy\n</think>\n\n<tool_call>{\"name\":\"f\"}</tool_call>"),
    "inside": (NONE + INSIDE, "because </thin </think> so"),
    "hermes": (HERMES, 'Yes.\n<tool_call>\n{"name": "f", "arguments": {"a": [1, -2.5e3, true, null, {"b": '
                       '"\\u00e9\\ud83d\\ude00 🦙 \\" \n"}]}}\n</tool_call>\n<tool_call>{"arguments":{},"name":"g"}'),
    "broken": (HERMES, '<tool_call>{"name":"f","arguments":{"a":1,}}</tool_call><tool_call>{"name":1}<tool_call>'),
    "xml": (XML, "<tool_call>\n<function=f>\n<parameter=s>\na \"b\"\n\n</parameter>\n<parameter=n>\n3\n"
                 "</parameter><parameter=o>{\"a\":[tru</parameter></function></tool_call> end"),
    "llama": (LLAMA, ' <|python_tag|>{"name":"f","parameters":{"x":{"y":[]}}}; {"name":"g"}'),
    "mistral": (MISTRAL, '[TOOL_CALLS] [{"name":"f","arguments":{"a":"b"},"id":"123456789"}, {"name":"g"}]'),
}
HERE.mkdir(parents=True, exist_ok=True)
for name, (how, text) in TEXTS.items():
    (HERE / name).write_bytes(bytes([how, 5, 1, 2, 3, 1, 4]) + text.encode())
    (HERE / (name + "-cut")).write_bytes(bytes([how, 2, 3, 7]) + text.encode()[:-len(text) // 4])
