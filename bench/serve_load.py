#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Load on a server of the OpenAI API: total tokens/s and time to the first token for numbers of
concurrent streams, and time to the first token with a long beginning that the server has seen.

  bench/serve_load.py http://127.0.0.1:8080 [--streams 1,2,4,8,16] [--tokens 128] [--prefix 2000]

The standard library alone. Each stream has a prompt of its own and, where the server knows
"ignore_eos", as many tokens as any other."""
import argparse
import http.client
import json
import statistics
import threading
import time
import urllib.parse


class Stream:
    """One streamed answer: when its pieces came."""

    def __init__(self, url, prompt, tokens):
        body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "stream": True, "ignore_eos": True,
                "stream_options": {"include_usage": True}}
        connection = http.client.HTTPConnection(url.hostname, url.port, timeout=600)
        self.begun = time.perf_counter()
        connection.request("POST", url.path + "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        assert response.status == 200, response.read()
        self.first = None
        for line in response:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            if "error" in event:
                raise RuntimeError(event["error"]["message"])
            if self.first is None and any(c["text"] for c in event["choices"]):
                self.first = time.perf_counter()
            if event.get("usage"):
                self.usage = event["usage"]
        self.ended = time.perf_counter()
        self.first = self.first or self.ended

    @property
    def first_ms(self):
        return 1e3 * (self.first - self.begun)


def side_by_side(url, n, prompts, tokens):
    streams = [None] * n

    def one(i):
        streams[i] = Stream(url, prompts[i], tokens)

    threads = [threading.Thread(target=one, args=(i,)) for i in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return streams


def load(url, numbers, tokens):
    print("streams  tokens/s  of one  first token, median  worst")
    alone = None
    for n in numbers:
        prompts = [f"Story number {n * 100 + i} is about a traveller who" for i in range(n)]
        streams = side_by_side(url, n, prompts, tokens)
        seconds = max(s.ended for s in streams) - min(s.begun for s in streams)
        rate = sum(s.usage["completion_tokens"] for s in streams) / seconds
        alone = alone or rate
        firsts = [s.first_ms for s in streams]
        print(f"{n:7d} {rate:9.1f} {rate / alone:7.2f} {statistics.median(firsts):16.1f} ms {max(firsts):6.1f} ms", flush=True)


def prefix(url, tokens, rounds=5):
    """Two questions after one long text: the first computes it, the second finds it kept."""
    words = "the quick brown fox jumps over the lazy dog and runs away from there to".split()
    cold, warm, size = [], [], 0
    for r in range(rounds):
        text = f"Text {time.time_ns()}: " + " ".join(words[(i * 7 + r) % len(words)] for i in range(tokens)) + "."
        for times, question in [(cold, " What is it about?"), (warm, " Who wrote it?")]:
            s = Stream(url, text + question, 2)
            times.append(s.first_ms)
            size = s.usage["prompt_tokens"]
        kept = s.usage.get("prompt_tokens_details", {}).get("cached_tokens", 0)
    cold_ms, warm_ms = statistics.median(cold), statistics.median(warm)
    print(f"prompt of {size} tokens, {kept} of them kept: first token after {warm_ms:.1f} ms, without {cold_ms:.1f} ms: "
          f"{cold_ms / warm_ms:.1f} times")


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("url")
    p.add_argument("--streams", default="1,2,4,8,16")
    p.add_argument("--tokens", type=int, default=128)
    p.add_argument("--prefix", type=int, default=2000, help="words of the long beginning; 0: leave it out")
    a = p.parse_args()
    url = urllib.parse.urlparse(a.url)
    Stream(url, "Hello", 8)  # pages in the weights
    load(url, [int(n) for n in a.streams.split(",")], a.tokens)
    if a.prefix:
        prefix(url, a.prefix)


if __name__ == "__main__":
    main()
