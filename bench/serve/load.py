#!/usr/bin/env python3
# SPDX-FileCopyrightText: Baton developers
# SPDX-License-Identifier: Apache-2.0
"""Steady streams and long prompts on one OpenAI-compatible server: does a prompt disturb answers?

    bench/serve/load.py --url http://127.0.0.1:8000 --model NAME [--seed N] [--steady 4]
                        [--longs 5] [--every 12] [--before 10] [--long-tokens 2000]

`steady` clients each ask for one answer of 256 tokens after another.  After `before` seconds a
prompt of about `long-tokens` tokens arrives every `every` seconds, `longs` times.  Arrivals are
on a schedule of the seed's and never wait for answers: a long prompt's TTFT counts from its
scheduled time to the first event with text.  `gap_ms` are the times between neighbouring events
with text of one stream, `before` and `while`: from the first long prompt's arrival to the first
text of the last.  A token that completes no character makes no event, so that the gap beside it
is two steps long: `tokens_per_event` says how often.  The first quarter of `before` is warm-up.

One thread and one selector, because it shares the processors with what it measures.  Standard
library only.  Prints one JSON object; exit code 1 if a request failed.
"""

import argparse
import heapq
import json
import os
import random
import selectors
import socket
import sys
import time
import urllib.parse

WORDS = ("apple barn cloud desk earth field glass house ink jar kite lamp moon nest oven path "
         "queen road sand tree uncle vase wheel yard acid bread chair dance edge frost grain hill "
         "island joke knife leaf mouth night ocean piano quiet roof shoe train union voice water "
         "youth arrow bell coat drum engine flag gold heart iron judge king light metal nail").split()
TIMEOUT_S = 300


def words(rng, count):
    return " ".join(rng.choice(WORDS) for _ in range(count))


def spread(seconds):
    """Nearest-rank percentiles in milliseconds."""
    values = sorted(seconds)
    if not values:
        return None
    rank = lambda p: round(values[max(0, -(-len(values) * p // 100) - 1)] * 1000, 1)
    return {"p50": rank(50), "p90": rank(90), "p99": rank(99),
            "max": round(values[-1] * 1000, 1), "n": len(values)}


class Request:
    """One streamed chat completion: bytes in, times of the events with text out."""

    def __init__(self, kind, due, prompt, tokens, done):
        self.kind, self.due, self.prompt, self.tokens, self.done = kind, due, prompt, tokens, done
        self.texts, self.usage, self.finish, self.error = [], None, None, None
        self.said_done, self.ended = False, False  # by the last event; by the last chunk
        self.raw, self.body, self.chunked, self.head = b"", b"", False, None

    def fail(self, why):
        self.error = self.error or why

    def feed(self, data, now):
        self.raw += data
        if self.head is None:
            end = self.raw.find(b"\r\n\r\n")
            if end < 0:
                return
            self.head, self.raw = self.raw[:end].decode("latin-1"), self.raw[end + 4:]
            self.chunked = "transfer-encoding: chunked" in self.head.lower()
            status = self.head.split(" ", 2)[1]
            if status != "200":
                self.fail(f"HTTP {status}: {self.raw[:200]!r}")
        self.unframe()
        *lines, self.body = self.body.split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                self.event(line[5:].strip(), now)

    def unframe(self):
        if not self.chunked:
            self.body, self.raw = self.body + self.raw, b""
            return
        while (end := self.raw.find(b"\r\n")) >= 0:
            size = int(self.raw[:end].split(b";")[0], 16)
            if len(self.raw) < end + 2 + size + 2:
                return
            self.body += self.raw[end + 2:end + 2 + size]
            self.raw = self.raw[end + 2 + size + 2:]
            if size == 0:
                self.ended = True
                return

    def event(self, payload, now):
        if payload == b"[DONE]":
            self.said_done = True
            return
        event = json.loads(payload)
        if event.get("error"):
            self.fail(f"in the stream: {event['error']}")
        self.usage = event.get("usage") or self.usage
        for choice in event.get("choices") or ():
            if (choice.get("delta") or {}).get("content"):
                self.texts.append(now)
            self.finish = choice.get("finish_reason") or self.finish

    def close(self):
        if not (self.said_done and self.finish and self.usage):
            self.fail("the stream ended early")

    @property
    def completion_tokens(self):
        return (self.usage or {}).get("completion_tokens", 0)


class Client:
    """Requests that run at once, each on a connection of its own, and calls that are due later."""

    def __init__(self, url, model):
        parts = urllib.parse.urlsplit(url if "//" in url else "//" + url)
        self.host, self.port = parts.hostname, parts.port or 80
        self.model = model
        self.selector = selectors.DefaultSelector()
        self.later, self.order, self.open = [], 0, 0

    def at(self, due, call):
        self.order += 1
        heapq.heappush(self.later, (due, self.order, call))

    def send(self, request):
        body = json.dumps({
            "model": self.model, "stream": True, "stream_options": {"include_usage": True},
            "temperature": 0, "max_tokens": request.tokens, "ignore_eos": True,
            "messages": [{"role": "user", "content": request.prompt}]}).encode()
        head = (f"POST /v1/chat/completions HTTP/1.1\r\nHost: {self.host}:{self.port}\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
                "Connection: close\r\n\r\n").encode()
        try:
            connection = socket.create_connection((self.host, self.port), timeout=10)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sendall(head + body)
        except OSError as error:
            request.fail(f"cannot send: {error}")
            request.done(request)
            return
        connection.setblocking(False)
        self.open += 1
        self.selector.register(connection, selectors.EVENT_READ, request)

    def run(self):
        """Until nothing is open and nothing is due."""
        end = time.monotonic() + TIMEOUT_S
        while (self.later or self.open) and time.monotonic() < end:
            now = time.monotonic()
            while self.later and self.later[0][0] <= now:
                heapq.heappop(self.later)[2]()
            wait = max(0.0, self.later[0][0] - time.monotonic()) if self.later else 1.0
            for key, _ in self.selector.select(wait):
                self.receive(key.fileobj, key.data)

    def receive(self, connection, request):
        try:
            data = connection.recv(1 << 16)
            request.feed(data, time.monotonic())
        except (OSError, ValueError) as error:
            request.fail(f"{type(error).__name__}: {error}")
            data = b""
        if data and not request.ended:
            return
        self.selector.unregister(connection)
        connection.close()
        self.open -= 1
        request.close()
        request.done(request)


class Sizes:
    """How many words a prompt of so many tokens has, by the server's own count."""

    def __init__(self, client, rng):
        counts = []
        for count in (50, 250):
            request = Request("size", time.monotonic(), words(rng, count), 1, lambda _: None)
            client.send(request)
            client.run()
            if request.error:
                sys.exit(f"load.py: the server cannot be used: {request.error}")
            counts.append(request.usage["prompt_tokens"])
        self.per_word = (counts[1] - counts[0]) / 200
        self.overhead = counts[0] - 50 * self.per_word

    def prompt(self, rng, tokens):
        return words(rng, max(1, round((tokens - self.overhead) / self.per_word)))


def gaps(requests, low, high, reaches_in):
    """Gaps that end in [low, high); one that began earlier counts if `reaches_in`."""
    return [b - a for r in requests for a, b in zip(r.texts, r.texts[1:])
            if low <= b < high and (a >= low or reaches_in)]


def interference(client, options):
    """The scenario of the head of this file; a dict of what came of it."""
    rng = random.Random(f"{options.seed}/interference")
    sizes = Sizes(client, random.Random(f"{options.seed}/sizes"))
    prompts = [sizes.prompt(rng, options.long_tokens) for _ in range(options.longs)]
    steady, longs = [], []
    state = {"left": options.longs}
    start = time.monotonic() + options.before

    def next_answer(source):
        def done(request):
            steady.append(request)
            if state["left"] > 0:
                # A broken server must not be hammered.
                client.at(time.monotonic() + (0.5 if request.error else 0),
                          lambda: next_answer(source))
        client.send(Request("steady", time.monotonic(), "Write a long story. " + sizes.prompt(source, 43),
                            options.steady_tokens, done))

    def long_done(request):
        state["left"] -= 1

    def arrive(i):
        longs.append(Request("long", start + i * options.every, prompts[i], options.long_output,
                             long_done))
        client.send(longs[-1])

    for i in range(options.steady):
        next_answer(random.Random(f"{options.seed}/steady/{i}"))
    for i in range(options.longs):
        client.at(start + i * options.every, lambda i=i: arrive(i))
    client.run()
    return report(steady, longs, start, options)


def report(steady, longs, start, options):
    end = max((r.texts[0] for r in longs if r.texts), default=time.monotonic())
    good = [r for r in steady if not r.error]
    texts = sum(len(r.texts) for r in good)
    out = {
        "long_ttft_ms": spread(r.texts[0] - r.due for r in longs if r.texts),
        "long_prompt_tokens": max((r.usage["prompt_tokens"] for r in longs if r.usage), default=0),
        "steady_ttft_ms": spread(r.texts[0] - r.due for r in good if r.texts),
        "tokens_per_event": round(sum(r.completion_tokens for r in good) / max(texts, 1), 3),
        "errors": sorted({r.error for r in steady + longs if r.error}),
        "while_s": round(end - start, 2),
    }
    for name, low, high in (("before", start - 0.75 * options.before, start),
                            ("while", start, end)):
        inside = gaps(steady, low, high, name == "while")
        events = sum(low <= t < high for r in steady for t in r.texts)
        median = sorted(inside)[len(inside) // 2] if inside else 0
        out[f"steady_{name}"] = {
            "gap_ms": spread(inside), "over_twice_median": sum(g > 2 * median for g in inside),
            "tokens_per_s": round(events * out["tokens_per_event"] / max(high - low, 1e-9), 1)}
    return out


def add_options(parser):
    parser.add_argument("--seed", type=int, default=1,
                        help="a new one for every run on one server: its prompt cache knows the old")
    parser.add_argument("--steady", type=int, default=4)
    parser.add_argument("--steady-tokens", type=int, default=256)
    parser.add_argument("--before", type=float, default=10, help="seconds without long prompts")
    parser.add_argument("--longs", type=int, default=5)
    parser.add_argument("--every", type=float, default=12, help="seconds between long prompts")
    parser.add_argument("--long-tokens", type=int, default=2000)
    parser.add_argument("--long-output", type=int, default=16)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", required=True, help="without the /v1")
    parser.add_argument("--model", required=True)
    add_options(parser)
    options = parser.parse_args()
    out = interference(Client(options.url, options.model), options)
    own = os.times()
    out["client_cpu_s"] = round(own.user + own.system, 2)
    print(json.dumps(out))
    return 1 if out["errors"] else 0


if __name__ == "__main__":
    sys.exit(main())
