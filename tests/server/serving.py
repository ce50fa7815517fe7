# SPDX-License-Identifier: Apache-2.0
"""What the server's tests share: a tiny model with a tokenizer of single bytes, a server on a free
port, requests, and a runner of test functions. The Python standard library alone."""
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback

PLEACH = os.environ["PLEACH"]
SOURCE = os.environ["PLEACH_SOURCE"]
SMOLLM2 = os.environ.get("PLEACH_SMOLLM2", "")
SLOW = float(os.environ.get("PLEACH_SLOW", "1"))  # how much longer a sanitized build may take

IM_START, IM_END = 257, 258
CHATML = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + "
    "'<|im_end|>' + '\\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def letter(byte):
    """The character that stands for a byte in a byte-level vocabulary (GPT-2)."""
    printed = [*range(33, 127), *range(161, 173), *range(174, 256)]
    return chr(byte) if byte in printed else chr(256 + [b for b in range(256) if b not in printed].index(byte))


def tiny_model(folder, template=CHATML, context=8192, checkpoint="llama-tied", **tokenizer_config):
    """A copy of a golden checkpoint whose ids 0 to 255 are the bytes, 256 to 258 control tokens; ids
    above stand for nothing. What it says is noise, the same each time."""
    os.makedirs(folder)
    golden = f"{SOURCE}/tests/golden/checkpoints/{checkpoint}"
    with open(f"{golden}/config.json") as f:
        config = json.load(f)
    config["max_position_embeddings"] = context
    shutil.copy(f"{golden}/model.safetensors", folder)
    special = [
        {"id": 256 + i, "content": text, "special": True, "single_word": False, "lstrip": False,
         "rstrip": False, "normalized": False}
        for i, text in enumerate(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    ]
    tokenizer = {
        "version": "1.0", "normalizer": None, "post_processor": None, "added_tokens": special,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
        "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "merges": [], "vocab": {letter(b): b for b in range(256)}},
    }
    tokenizer_config = {"eos_token": "<|im_end|>", "chat_template": template, **tokenizer_config}
    for name, value in [("config", config), ("tokenizer", tokenizer), ("tokenizer_config", tokenizer_config)]:
        with open(f"{folder}/{name}.json", "w") as f:
            json.dump(value, f)
    return folder


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        return self.json["error"]

    def events(self):
        """The JSON of server-sent events; "[DONE]" stays a string."""
        blocks = self.body.decode().split("\n\n")
        assert blocks.pop() == "", "the stream does not end with an empty line"
        assert all(b.startswith("data: ") for b in blocks), blocks
        return [b[6:] if b == "data: [DONE]" else json.loads(b[6:]) for b in blocks]


class Server:
    """pleach serve on a free port, until the end of a with."""

    def __init__(self, model, *options):
        self.log = tempfile.TemporaryFile("w+")
        command = [PLEACH, "serve", model, "--port", "0", "-t", "2", *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.log, text=True)
        line = self.process.stdout.readline()
        found = re.search(r":(\d+)$", line)
        if not found:
            self.process.wait()
            raise RuntimeError(f"the server does not start: {self.errors()}")
        self.port = int(found.group(1))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            status = self.stop()
            assert status == 0, f"the server ends with {status}: {self.errors()}"

    def errors(self):
        self.log.seek(0)
        return self.log.read()

    def stop(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.process.wait(timeout=30 * SLOW)

    def rss(self):
        with open(f"/proc/{self.process.pid}/statm") as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def request(self, method, path, body=None, headers=None, timeout=300):
        """Sends a body (bytes as they are, other values as JSON) and reads the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        try:
            connection.request(method, path, body, {"Content-Type": "application/json", **(headers or {})})
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read())
        finally:
            connection.close()

    def get(self, path, **more):
        return self.request("GET", path, **more)

    def post(self, path, body, **more):
        return self.request("POST", path, body, **more)

    def chat(self, content="Hello", **fields):
        messages = content if isinstance(content, list) else [{"role": "user", "content": content}]
        return self.post("/v1/chat/completions", {"messages": messages, **fields})

    def complete(self, prompt="Hello", **fields):
        return self.post("/v1/completions", {"prompt": prompt, **fields})

    def metric(self, name):
        return float(re.search(rf"^pleach_{name} (\S+)$", self.get("/metrics").body.decode(), re.M).group(1))

    def open(self, text):
        """A connection of one's own on which `text` was sent."""
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        connection.sendall(text)
        return connection

    def post_bytes(self, path, body):
        """The bytes of a request."""
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        return f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def wait_for(condition, seconds=10, what="it"):
    end = time.monotonic() + seconds * SLOW
    while not condition():
        assert time.monotonic() < end, f"{what} does not come"
        time.sleep(0.02)


def run(tests, only=None):
    """Runs functions whose name begins with test_; ends the program."""
    failures = 0
    for name, test in [(n, t) for n, t in tests.items() if n.startswith("test_") and callable(t)]:
        if only and only not in name:
            continue
        try:
            test()
            print(f"passed: {name}", flush=True)
        except Exception:
            failures += 1
            print(f"FAILED: {name}\n{traceback.format_exc()}", flush=True)
    sys.exit(1 if failures else 0)
