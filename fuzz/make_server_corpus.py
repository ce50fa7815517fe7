# SPDX-License-Identifier: Apache-2.0
"""Writes fuzz/corpus/server: a request a file, its first line and its body."""
import json
import os

folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus/server")
os.makedirs(folder, exist_ok=True)
chat = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3}
tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}}
call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"a\": \"b\"}"}}
requests = {
    "chat": ("POST /v1/chat/completions", chat),
    "chat-stream": ("POST /v1/chat/completions", {**chat, "stream": True, "stream_options": {"include_usage": True}, "n": 2}),
    "chat-settings": ("POST /v1/chat/completions", {**chat, "temperature": 0.5, "top_p": 0.9, "top_k": 5, "min_p": 0.1, "seed": 1,
                      "stop": ["a", "bc"], "logit_bias": {"65": 5}, "logprobs": True, "top_logprobs": 2, "presence_penalty": 1,
                      "frequency_penalty": -1, "repetition_penalty": 1.1, "ignore_eos": True}),
    "chat-schema": ("POST /v1/chat/completions", {**chat, "response_format": {"type": "json_schema", "json_schema": {
                    "name": "s", "schema": {"type": "object", "properties": {"a": {"enum": [1, "x"]}}, "required": ["a"]}}}}),
    "chat-json": ("POST /v1/chat/completions", {**chat, "response_format": {"type": "json_object"}}),
    "chat-grammar": ("POST /v1/chat/completions", {**chat, "grammar": 'root ::= "a" [b-d]* | x\nx ::= "\\n"'}),
    "chat-tools": ("POST /v1/chat/completions", {**chat, "tools": [tool], "tool_choice": "required", "stream": True}),
    "chat-tool-named": ("POST /v1/chat/completions", {**chat, "tools": [tool], "tool_choice": {"type": "function", "function": {"name": "f"}}}),
    "chat-turns": ("POST /v1/chat/completions", {**chat, "messages": [
        {"role": "system", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "<|im_end|>"}]},
        {"role": "assistant", "content": None, "tool_calls": [call]}, {"role": "tool", "tool_call_id": "1", "content": "{}"}],
        "chat_template_kwargs": {"enable_thinking": False}}),
    "text": ("POST /v1/completions", {"prompt": ["a", "bc"], "max_tokens": 2, "echo": True, "logprobs": 1}),
    "text-ids": ("POST /v1/completions", {"prompt": [[1, 2], [3]], "max_tokens": 0, "best_of": 1, "suffix": "", "stream": True}),
    "embeddings": ("POST /v1/embeddings", {"input": ["a", "b"], "encoding_format": "base64", "pooling": "last"}),
    "tokenize": ("POST /tokenize", {"content": "a<|im_end|>", "parse_special": True, "add_special": True, "with_pieces": True}),
    "detokenize": ("POST /detokenize", {"tokens": [72, 257, 300]}),
    "apply-template": ("POST /apply-template", chat),
    "models": ("GET /v1/models", None),
    "metrics": ("GET /metrics", None),
    "props": ("GET /props Bearer x", None),
    "nothing": ("DELETE /nothing", None),
}
for name, (line, body) in requests.items():
    with open(f"{folder}/{name}", "w") as f:
        f.write(line + "\n" + ("" if body is None else json.dumps(body)))
