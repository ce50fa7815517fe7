# SPDX-License-Identifier: Apache-2.0
"""What no request may do to the server: bodies of any size and kind, clients that are slow or gone,
keys, origins, a full queue, signals. Names hold the rows of faults that other servers had."""
import json
import random
import signal
import socket
import sys
import tempfile
import threading
import time

from serving import PLEACH, SLOW, Server, run, tiny_model, wait_for

folder = tempfile.TemporaryDirectory()
model = tiny_model(f"{folder.name}/tiny")
server = Server(model, "--max-body", "1000000", "--timeout", "2", "--parallel", "2", "--queue", "2")
LONG = {"prompt": "x", "max_tokens": 8000, "ignore_eos": True}  # seconds of work


def refused(answer, status):
    assert answer.status == status, (answer.status, answer.body)
    assert set(answer.error) == {"message", "type", "param", "code"}, answer.body


def idle():
    return server.metric("running_answers") == 0 and server.metric("waiting_requests") == 0


def response_of(connection):
    """All that comes until the server closes."""
    received = b""
    while True:
        try:
            bytes_ = connection.recv(1 << 16)
        except ConnectionResetError:
            return received
        if not bytes_:
            return received
        received += bytes_


# ---- bodies ----------------------------------------------------------------------------------------


def test_F12_bodies_of_any_kind():
    base = json.dumps({"messages": [{"role": "user", "content": "Hi é"}], "max_tokens": 2, "stop": ["a"],
                       "logit_bias": {"5": 1}, "stream": False, "response_format": {"type": "text"}}).encode()
    wrong = [b"", b" ", b"null", b"7", b'"x"', b"[]", b"{", b"}", b"{}", b'{"messages":"x"}', b"\x00", b"\xff\xfe",
             b'{"a":1,"a":2}', b'{"n":NaN}', b'{"n":1e400}', b'{"n":' + b"9" * 400 + b"}", b"[" * 100000,
             b'{"a":' * 100000, b'{"a":' + b"[" * 100000 + b"]" * 100000 + b"}", base + b"x", b'{"a":"' + b"x" * 900000]
    wrong += [base[:n] for n in range(0, len(base), 3)]
    draw = random.Random(1)
    for path in ["/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/tokenize", "/detokenize", "/apply-template"]:
        for body in wrong:
            refused(server.post(path, body), 400)
    for _ in range(300):
        body = bytearray(base)
        for _ in range(draw.randint(1, 4)):
            at = draw.randrange(len(body))
            body[at : at + draw.randint(0, 3)] = draw.choice([b"", b"\0", b"{", b"[", b'"', b"-", b"1e9", b"null", bytes([draw.randrange(256)])])
        answer = server.post("/v1/chat/completions", bytes(body))
        assert answer.status in (200, 400), answer.body
        if answer.status == 400:
            refused(answer, 400)
    assert server.get("/health").status == 200


def test_F12_one_type_in_place_of_another():
    fields = {"messages": [{"role": "user", "content": "x"}], "prompt": "x", "input": "x", "content": "x", "tokens": [1],
              "max_tokens": 1, "tools": [], "tool_choice": "none", "stop": "a", "logit_bias": {}, "stream_options": {}}
    others = [None, True, 0, -1, 1.5, "", "x", [], {}, [[]], [{}], {"a": {}}, [None], {"type": []}, 2**62, [2**62] * 3]
    for path in ["/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/tokenize", "/detokenize", "/apply-template"]:
        for name in fields:
            for other in others:
                answer = server.post(path, {**fields, name: other})
                assert answer.status in (200, 400), (path, name, other, answer.body)


def test_F16_bodies_of_any_size():
    before = server.rss()
    for announced in [1000001, 10 * 10**9, 2**63 - 1]:
        connection = server.open(f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {announced}\r\n\r\n".encode())
        answer = response_of(connection)
        assert answer.startswith(b"HTTP/1.1 413 "), answer[:200]
        connection.close()
    body = b'{"prompt":"' + b"x" * 1500000 + b'"}'
    chunked = b"".join(f"{len(body[i:i + 65536]):x}\r\n".encode() + body[i : i + 65536] + b"\r\n" for i in range(0, len(body), 65536))
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    connection = server.open(head + chunked + b"0\r\n\r\n")
    assert response_of(connection).startswith(b"HTTP/1.1 413 ")
    refused(server.post("/v1/completions", b'{"prompt":"' + b"x" * 900000 + b'"}'), 400)  # the context is full
    assert server.rss() - before < 64 << 20


def test_headers_and_paths_of_any_size():
    for head in [b"GET /" + b"x" * 200000 + b" HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\nA: " + b"x" * 200000 + b"\r\n\r\n",
                 b"\r\n\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", b"GET\r\n\r\n", b"POST /v1/completions HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
                 b"POST /v1/completions HTTP/1.1\r\nContent-Length: x\r\n\r\n", b"\0" * 1000]:
        try:
            connection = server.open(head)
            response_of(connection)
            connection.close()
        except OSError:
            pass
    assert server.get("/health").status == 200


def test_raw_bytes():
    """Requests with bytes changed, lines cut, joined or doubled: an answer or a closed connection."""
    draw = random.Random(3)
    body = b'{"messages":[{"role":"user","content":"x"}],"max_tokens":1}'
    whole = (b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\n"
             b"Authorization: Bearer x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    chunked = b"POST /tokenize HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n8\r\n{\"content\r\n5\r\n\":\"\"}\r\n0\r\n\r\n"
    for _ in range(400):
        request = bytearray(draw.choice([whole, chunked, whole + whole]))
        for _ in range(draw.randint(1, 5)):
            at = draw.randrange(len(request))
            new = draw.choice([b"", b"\r\n", b"\n", b":", b" ", b"\0", b"0", b"9999999999", b"-", b"%", bytes([draw.randrange(256)])])
            request[at : at + draw.randint(0, 4)] = new
        connection = server.open(b"")
        try:
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            answer = response_of(connection)
            assert not answer or answer.startswith(b"HTTP/1."), answer[:100]
        except (BrokenPipeError, ConnectionResetError):
            pass
        connection.close()
    assert server.get("/health").status == 200


def test_A08_one_long_run_of_letters():
    big = tiny_model(f"{folder.name}/big", context=200000)
    import os
    import resource
    limits = resource.getrlimit(resource.RLIMIT_STACK)
    resource.setrlimit(resource.RLIMIT_STACK, (512 << 10, limits[1]))
    try:
        with Server(big) as s:
            for letter in ["Z", ".", " ", "漢"]:
                answer = s.post("/tokenize", {"content": letter * 131072})
                assert answer.status == 200 and answer.json["count"] == 131072 * len(letter.encode())
                assert s.chat(letter * 131072, max_tokens=0).status in (200, 400) if letter == "漢" else True
    finally:
        resource.setrlimit(resource.RLIMIT_STACK, limits)


# ---- routes, keys, origins -------------------------------------------------------------------------


def test_paths_and_methods():
    refused(server.get("/v1/nothing"), 404)
    refused(server.get("/../../etc/passwd"), 404)
    refused(server.get("/v1/chat/completions"), 405)
    refused(server.request("DELETE", "/v1/models"), 405)
    refused(server.post("/nothing", {}), 404)
    assert server.get("/v1/models?x=1").status == 200


def test_keys():
    path = f"{folder.name}/keys"
    with open(path, "w") as f:
        f.write("# keys\nfirst-key\n\n  second  \n")
    with Server(model, "--api-key-file", path) as s:
        for given in [None, "first-key", "Bearer", "Bearer ", "Bearer first", "Bearer first-key2", "Basic first-key",
                      "Bearer " + "x" * 5000, "Bearer # keys"]:
            answer = s.get("/v1/models", headers={"Authorization": given} if given else None)
            refused(answer, 401)
            assert answer.error["code"] == "invalid_api_key" and answer.headers["WWW-Authenticate"] == "Bearer"
        for key in ["first-key", "second"]:
            assert s.get("/v1/models", headers={"Authorization": f"Bearer {key}"}).status == 200
            answer = s.post("/v1/completions", {"prompt": "x", "max_tokens": 1}, headers={"Authorization": f"bearer {key}"})
            assert answer.status == 200
        assert s.get("/health").status == 200
        refused(s.get("/metrics"), 401)


def test_origins():
    assert server.get("/v1/models").headers["Access-Control-Allow-Origin"] is None
    refused(server.request("OPTIONS", "/v1/completions"), 405)
    with Server(model, "--cors", "https://chat.example") as s:
        answer = s.request("OPTIONS", "/v1/completions", headers={"Origin": "https://chat.example"})
        assert answer.status == 204 and "Authorization" in answer.headers["Access-Control-Allow-Headers"]
        assert s.get("/v1/models").headers["Access-Control-Allow-Origin"] == "https://chat.example"
        assert s.post("/v1/completions", b"x").headers["Access-Control-Allow-Origin"] == "https://chat.example"


# ---- clients ---------------------------------------------------------------------------------------


def test_F06_a_client_goes_away():
    for stream in [True, False]:
        for path, body in [("/v1/completions", LONG), ("/v1/completions", {**LONG, "prompt": "x" * 8000}),
                           ("/v1/completions", {**LONG, "prompt": ["x", "y", "z"], "n": 2})]:
            wait_for(idle, what="rest")
            connection = server.open(server.post_bytes(path, {**body, "stream": stream}))
            wait_for(lambda: not idle(), what="work")
            connection.close()
            wait_for(idle, 1, "the end of work for a client that is gone")


def test_F06_clients_that_wait_go_away():
    wait_for(idle, what="rest")
    body = server.post_bytes("/v1/completions", LONG)
    connections = [server.open(body) for _ in range(4)]
    wait_for(lambda: server.metric("waiting_requests") == 2, what="a queue")
    for c in connections:
        c.close()
    wait_for(idle, 1, "the end of work for clients that are gone")


def test_the_queue_is_full():
    wait_for(idle, what="rest")
    body = server.post_bytes("/v1/completions", LONG)
    connections = [server.open(body) for _ in range(4)]
    wait_for(lambda: server.metric("waiting_requests") == 2, what="a queue")
    answer = server.complete("x")
    assert answer.status == 429 and answer.headers["Retry-After"] == "1", answer.body
    assert answer.error["type"] == "rate_limit_error"
    assert server.complete("x", stream=True).status == 429
    for c in connections:
        c.close()
    wait_for(idle, 2, "rest")
    assert server.complete("x", max_tokens=1).status == 200


def test_slow_clients_are_shut_out():
    """One that sends nothing, parts of a head, of a body, byte by byte; one that never reads."""
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n"
    silent = [server.open(b""), server.open(head[:30]), server.open(head), server.open(head + b'{"prompt":')]
    dripping = server.open(b"")
    begun = time.monotonic()

    def drip():
        try:
            for byte in head * 100:
                dripping.sendall(bytes([byte]))
                time.sleep(0.05)
        except OSError:
            pass

    thread = threading.Thread(target=drip)
    thread.start()
    assert server.complete("x", max_tokens=1).status == 200
    for c in silent:
        c.settimeout(20 * SLOW)
        response_of(c)
    thread.join(20 * SLOW)
    assert not thread.is_alive(), "a client that sends byte by byte is never shut out"
    assert time.monotonic() - begun >= 1.9


def test_a_client_that_does_not_read_holds_nobody():
    wait_for(idle, what="rest")
    stuck = socket.socket()
    stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    stuck.connect(("127.0.0.1", server.port))
    stuck.sendall(server.post_bytes("/v1/completions", {**LONG, "stream": True, "n": 2}))
    wait_for(lambda: not idle(), what="work")
    assert server.complete("x", max_tokens=5).status == 200
    wait_for(idle, 60, "the end of its work")
    stuck.close()


def test_half_open_connections_are_bounded():
    with Server(model, "--connections", "8", "--timeout", "1") as s:
        connections = [socket.create_connection(("127.0.0.1", s.port)) for _ in range(40)]
        wait_for(lambda: answers(s), 10, "room for a request")
        for c in connections:
            c.close()


def answers(s):
    try:
        return s.get("/health").status == 200
    except OSError:
        return False


# ---- signals ---------------------------------------------------------------------------------------


def test_F39_stopped_with_open_streams():
    s = Server(model)
    connections = [s.open(s.post_bytes("/v1/completions", {**LONG, "n": 8, "stream": True})) for _ in range(3)]
    for c in connections:
        assert c.recv(4096)
    received = [b""] * 3

    def read(i):
        received[i] = response_of(connections[i])

    threads = [threading.Thread(target=read, args=(i,)) for i in range(3)]
    for t in threads:
        t.start()
    begun = time.monotonic()
    assert s.stop() == 0, s.errors()
    assert time.monotonic() - begun < 5 * SLOW
    for t in threads:
        t.join()
    for r in received:
        assert b"data: [DONE]" in r or b'"error":' in r, r[-300:]
        assert r.endswith(b"0\r\n\r\n"), "the stream is not closed cleanly"


def test_F39_stopped_while_answers_end_in_time():
    s = Server(model)
    connection = s.open(s.post_bytes("/v1/completions", {"prompt": "x", "max_tokens": 500, "ignore_eos": True}))
    wait_for(lambda: s.metric("running_answers") == 1 or s.metric("requests_total") == 1, what="work")
    assert s.stop(signal.SIGINT) == 0
    answer = response_of(connection)
    assert answer.startswith(b"HTTP/1.1 200 ") and b'"completion_tokens":500' in answer, answer[-300:]


def test_F39_a_second_signal_ends_at_once():
    s = Server(model)
    connection = s.open(s.post_bytes("/v1/completions", {**LONG, "n": 16, "stream": True}))
    assert connection.recv(100)
    s.process.send_signal(signal.SIGTERM)
    time.sleep(0.2)
    assert s.stop() == 130
    connection.close()


def test_logs():
    for option in [[], ["--log-json"], ["--log-json", "--log-content"]]:
        with Server(model, *option) as s:
            s.chat("a secret", max_tokens=3, ignore_eos=True)
            s.get("/no\x01where".replace("\x01", "%01"))
        lines = s.errors().splitlines()[-2:]  # a line is written once its answer has gone out
        assert ("a secret" in "".join(lines)) == ("--log-content" in option), lines
        if option:
            first, second = map(json.loads, lines)
            assert first["status"] == 200 and first["new_tokens"] == 3 and first["path"] == "/v1/chat/completions"
            assert second["status"] == 404
        else:
            assert " 200 " in lines[0] and "new=3" in lines[0]


def test_the_log_of_an_answer_that_nobody_waits_for():
    with Server(model, "--log-json") as s:
        body = {"prompt": "Hello", "max_tokens": 2000, "ignore_eos": True, "stream": True}
        with s.open(s.post_bytes("/v1/completions", body)) as connection:
            got = connection.recv(4096)
            while got.count(b"data: ") < 3:  # it generates
                got += connection.recv(4096) or b"data: closed" * 3
            assert b"closed" not in got, got
    line = json.loads(s.errors().splitlines()[-1])
    assert line["prompt_tokens"] in (5, 6), line  # with a first token


def test_the_log_of_an_answer_that_is_cut_off():
    s = Server(model, "--log-json")
    connection = s.open(s.post_bytes("/v1/completions", {**LONG, "n": 8, "stream": True}))
    assert connection.recv(4096)
    reader = threading.Thread(target=response_of, args=(connection,))
    reader.start()
    assert s.stop(signal.SIGTERM) == 0, s.errors()
    reader.join()
    line = json.loads(s.errors().splitlines()[-1])
    assert line["path"] == "/v1/completions" and line["prompt_tokens"] > 0, line


def test_a_port_that_is_taken():
    try:
        Server(model, "--port", str(server.port)).stop()
    except RuntimeError as e:
        assert "cannot listen on 127.0.0.1" in str(e), e
    else:
        raise AssertionError("two servers on one port")


if __name__ == "__main__":
    with server:
        run(globals(), *sys.argv[1:])
