# SPDX-License-Identifier: Apache-2.0
"""Clients that people use: OpenAI's own for Python (sync, async, streams), the `llm` command, curl.
Skipped without the packages."""
import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile

from serving import SMOLLM2, Server, run, tiny_model

try:
    import openai
except ImportError:
    print("skipped: no Python with the openai package (PLEACH_PYTHON)")
    sys.exit(77)

folder = tempfile.TemporaryDirectory()
keys = f"{folder.name}/keys"
with open(keys, "w") as f:
    f.write("sk-test\n")
server = Server(tiny_model(f"{folder.name}/tiny"), "--api-key-file", keys)
base = f"http://127.0.0.1:{server.port}/v1"
client = openai.OpenAI(base_url=base, api_key="sk-test", max_retries=0)
HELLO = [{"role": "user", "content": "Hello"}]
FIXED = {"model": "tiny", "temperature": 0, "max_tokens": 30}


def test_chat():
    a = client.chat.completions.create(messages=HELLO, **FIXED)
    assert a.choices[0].message.role == "assistant" and a.usage.completion_tokens <= 30
    stream = client.chat.completions.create(messages=HELLO, stream=True, stream_options={"include_usage": True}, **FIXED)
    chunks = list(stream)
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == a.choices[0].message.content
    assert chunks[-1].usage == a.usage or chunks[-1].usage.completion_tokens == a.usage.completion_tokens
    with client.chat.completions.stream(messages=HELLO, **FIXED) as events:
        events.until_done()
        assert events.current_completion_snapshot.choices[0].message.content == a.choices[0].message.content


def test_async():
    async def ask():
        async with openai.AsyncOpenAI(base_url=base, api_key="sk-test") as c:
            whole = await asyncio.gather(*(c.chat.completions.create(messages=HELLO, **FIXED) for _ in range(6)))
            assert len({a.choices[0].message.content for a in whole}) == 1
            text = ""
            async for chunk in await c.chat.completions.create(messages=HELLO, stream=True, **FIXED):
                text += chunk.choices[0].delta.content or ""
            assert text == whole[0].choices[0].message.content

    asyncio.run(ask())


def test_completions_embeddings_models():
    a = client.completions.create(prompt="Hello", logprobs=2, echo=True, **FIXED)
    assert a.choices[0].text.startswith("Hello") and len(a.choices[0].logprobs.tokens) == 5 + a.usage.completion_tokens
    text = "".join(c.choices[0].text for c in client.completions.create(prompt="Hello", stream=True, **FIXED))
    assert "Hello" + text == a.choices[0].text
    vectors = client.embeddings.create(model="tiny", input=["a", "b"]).data  # base64 on the wire
    assert len(vectors) == 2 and len(vectors[0].embedding) == 128
    floats = client.embeddings.create(model="tiny", input="a", encoding_format="float").data[0].embedding
    assert max(abs(x - y) for x, y in zip(floats, vectors[0].embedding)) < 1e-6
    assert [m.id for m in client.models.list()] == ["tiny"]


def test_logprobs_and_formats():
    a = client.chat.completions.create(messages=HELLO, logprobs=True, top_logprobs=2, **FIXED)
    assert len(a.choices[0].logprobs.content) == a.usage.completion_tokens
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": False}
    a = client.chat.completions.create(
        messages=HELLO, response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}, **FIXED)
    assert isinstance(json.loads(a.choices[0].message.content)["ok"], bool)


def fails(kind, call):
    try:
        call()
    except kind as e:
        return e
    raise AssertionError(f"no {kind.__name__}")


def test_errors():
    wrong = openai.OpenAI(base_url=base, api_key="sk-other", max_retries=0)
    assert fails(openai.AuthenticationError, lambda: wrong.models.list()).code == "invalid_api_key"
    e = fails(openai.BadRequestError, lambda: client.chat.completions.create(messages=HELLO, model="x", temperature=-1))
    assert e.param == "temperature" and "temperature" in e.body["message"]
    fails(openai.NotFoundError, lambda: client.files.list())
    e = fails(openai.BadRequestError, lambda: client.completions.create(model="x", prompt="x" * 9000))
    assert e.code == "context_length_exceeded"


def test_a_stream_that_is_left():
    stream = client.completions.create(model="x", prompt="x", max_tokens=8000, stream=True, extra_body={"ignore_eos": True})
    next(iter(stream))
    stream.close()
    assert client.chat.completions.create(messages=HELLO, **FIXED).choices


def test_llm():
    command = shutil.which("llm", path=os.path.dirname(sys.executable)) or shutil.which("llm")
    if not command:
        print("skipped: no llm command")
        return
    home = f"{folder.name}/llm"
    os.makedirs(home)
    with open(f"{home}/extra-openai-models.yaml", "w") as f:
        f.write(f'- model_id: tiny\n  model_name: tiny\n  api_base: "{base}"\n  api_key_name: tiny\n')
    environment = {**os.environ, "LLM_USER_PATH": home, "LLM_TINY_KEY": "sk-test"}
    options = ["-m", "tiny", "--key", "sk-test", "-o", "temperature", "0", "-o", "max_tokens", "30", "Hello"]
    said = []
    for more in [[], ["--no-stream"]]:
        got = subprocess.run([command, *options, *more], env=environment, capture_output=True, text=True, timeout=120)
        assert got.returncode == 0, got.stderr
        said.append(got.stdout)
    expected = client.chat.completions.create(messages=HELLO, **FIXED).choices[0].message.content
    assert said[0].strip() == said[1].strip() == expected.strip()


def test_curl():
    command = shutil.which("curl")
    if not command:
        print("skipped: no curl")
        return
    ask = [command, "-sS", f"{base}/chat/completions", "-H", "Authorization: Bearer sk-test", "-H", "Content-Type: application/json"]
    got = subprocess.run([*ask, "-d", json.dumps({"messages": HELLO, **FIXED})], capture_output=True, check=True)
    content = json.loads(got.stdout)["choices"][0]["message"]["content"]
    got = subprocess.run([*ask, "-N", "-d", json.dumps({"messages": HELLO, "stream": True, **FIXED})], capture_output=True, check=True)
    events = [json.loads(line[6:]) for line in got.stdout.decode().split("\n\n") if line.startswith("data: {")]
    assert "".join(e["choices"][0]["delta"].get("content", "") for e in events) == content
    big = subprocess.run([*ask, "-o", "/dev/null", "-w", "%{http_code}", "-d", "@-"], input=b"x" * (20 << 20), capture_output=True)
    assert big.stdout == b"413", (big.stdout, big.stderr)


def test_the_real_model():
    if not os.path.exists(SMOLLM2):
        print("skipped: no real model (PLEACH_SMOLLM2)")
        return
    with Server(SMOLLM2) as s:
        real = openai.OpenAI(base_url=f"http://127.0.0.1:{s.port}/v1", api_key="none")
        question = [{"role": "user", "content": "What is the capital of France? Answer in one word."}]
        a = real.chat.completions.create(model="x", messages=question, temperature=0, max_tokens=20)
        assert "Paris" in a.choices[0].message.content and a.choices[0].finish_reason == "stop", a
        again = real.chat.completions.create(model="x", messages=question, temperature=0, max_tokens=20)
        assert again.choices[0].message.content == a.choices[0].message.content
        assert again.usage.prompt_tokens_details.cached_tokens > 0


if __name__ == "__main__":
    with server:
        run(globals(), *sys.argv[1:])
