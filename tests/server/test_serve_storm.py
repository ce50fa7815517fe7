# SPDX-License-Identifier: Apache-2.0
"""Many requests at once, good, bad, cut off and oversized, of which every good answer is right; and
many after one another, which leave nothing behind. PLEACH_REQUESTS: how many of those (1000)."""
import json
import os
import random
import socket
import sys
import tempfile
import threading

from serving import SLOW, Server, run, tiny_model, wait_for

folder = tempfile.TemporaryDirectory()
model = tiny_model(f"{folder.name}/tiny")
AT_ONCE = 200


def good_requests(draw, n):
    """Requests with one right answer each: greedy or seeded."""
    system = {"role": "system", "content": "You are helpful. " * 12}
    for i in range(n):
        messages = [system, {"role": "user", "content": draw.choice(["Hi", "Hello there", "x" * 300, "漢字 🦙"]) + str(i % 7)}]
        fields = {"max_tokens": draw.randint(0, 60), "ignore_eos": True, **draw.choice([{"temperature": 0}, {"seed": i % 5}])}
        fields.update(draw.choice([{}, {}, {"n": 2}, {"stop": ["e"]}, {"logprobs": True, "top_logprobs": 2},
                                   {"grammar": 'root ::= [a-z]+ "!"'}]))
        yield {"messages": messages, **fields}


def essence(answer):
    """What of an answer must be the same each time."""
    assert answer.status == 200, answer.body
    usage = answer.json["usage"]
    return answer.json["choices"], usage["prompt_tokens"], usage["completion_tokens"]


def streamed_texts(answer):
    assert answer.status == 200, answer.body
    events = answer.events()
    assert events[-1] == "[DONE]"
    texts = {}
    for e in events[:-1]:
        for c in e["choices"]:
            texts[c["index"]] = texts.get(c["index"], "") + c["delta"].get("content", "")
    return texts


def bad(s, draw):
    """A request that is wrong, cut off or too large; whatever comes back, the server stays."""
    kind = draw.randrange(6)
    long = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 5000, "ignore_eos": True, "stream": bool(kind % 2)}
    try:
        if kind == 0:
            assert s.post("/v1/chat/completions", draw.choice([b"{", b"[" * 5000, b"{}", b'{"messages":7}'])).status == 400
        elif kind == 1:
            assert s.chat("x", temperature=-1).status == 400
        elif kind == 2:
            assert s.post("/v1/completions", b'{"prompt":"' + b"x" * 2500000).status == 413
        elif kind == 3:
            s.open(s.post_bytes("/v1/chat/completions", long)[: draw.randint(1, 200)]).close()
        else:
            connection = s.open(s.post_bytes("/v1/chat/completions", long))
            if kind == 4:
                connection.settimeout(draw.random())
                try:
                    connection.recv(100)
                except socket.timeout:
                    pass
            connection.close()
    except (ConnectionError, BrokenPipeError):
        assert kind == 2, "only a body that nobody reads may break off"


def test_a_storm():
    draw = random.Random(7)
    wanted = list(good_requests(draw, AT_ONCE // 2))
    with Server(model, "--parallel", "1", "--keep", "0") as alone:
        expected = [essence(alone.post("/v1/chat/completions", body)) for body in wanted]
    failures = []
    with Server(model, "--parallel", "16", "--queue", "500", "--max-body", "2000000", "--chunk", "32") as s:
        start = threading.Barrier(AT_ONCE)

        def one(i):
            own = random.Random(i)
            start.wait()
            try:
                if i % 2:
                    return bad(s, own)
                body, right = wanted[i // 2], expected[i // 2]
                if i % 4 and "logprobs" not in body:
                    texts = streamed_texts(s.post("/v1/chat/completions", {**body, "stream": True}))
                    assert texts == {c["index"]: c["message"]["content"] for c in right[0]}, (texts, right)
                else:
                    got = essence(s.post("/v1/chat/completions", body))
                    assert got == right, (got, right)
            except BaseException as e:
                failures.append((i, repr(e)))

        threads = [threading.Thread(target=one, args=(i,)) for i in range(AT_ONCE)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert not failures, failures[:5]
        wait_for(lambda: s.metric("running_answers") == 0, 20, "rest")
        assert essence(s.post("/v1/chat/completions", wanted[0])) == expected[0]


def test_requests_leave_nothing_behind():
    n = int(os.environ.get("PLEACH_REQUESTS", "1000"))
    with Server(model, "--keep", "1000000", "--max-body", "2000000", "-q") as s:
        failures = []

        def some(count, seed):
            draw = random.Random(seed)
            try:
                for body in good_requests(draw, count):
                    kind = draw.randrange(8)
                    if kind == 0:
                        bad(s, draw)
                    else:
                        answer = s.post("/v1/chat/completions", {**body, "max_tokens": 4, "stream": kind == 1})
                        assert answer.status == 200, answer.body
            except BaseException as e:
                failures.append(repr(e))

        def many(count, seed):
            threads = [threading.Thread(target=some, args=(count // 4, seed + i)) for i in range(4)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            wait_for(lambda: s.metric("running_answers") == 0, 20, "rest")

        many(400, 1)  # arenas of the allocator and kept caches have filled
        before = s.rss()
        many(n, 100)
        grown = s.rss() - before
        assert not failures, failures
        print(f"{n} requests: {before >> 10} KiB, {grown >> 10} KiB more after them")
        if SLOW == 1:  # a sanitizer keeps freed memory for a while
            assert grown < 12 << 20, f"{grown} bytes more after {n} requests"


if __name__ == "__main__":
    run(globals(), *sys.argv[1:])
