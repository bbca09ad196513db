# SPDX-FileCopyrightText: Baton developers
# SPDX-License-Identifier: Apache-2.0

"""Clients of the fault tests: greedy streams over HTTP, and what they ought to answer."""

import dataclasses
import hashlib
import http.client
import json
import pathlib
import socket
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
from cluster import FAILPOINTS, MODEL_NAME, words  # noqa: E402

STREAMS = 16
# Prompt tokens and answer tokens of the 16: four short ones, which decode runs itself.
SHAPES = [(20 + 2 * i, 20) for i in range(4)] + [(48 + 6 * i, 16 + i % 4 * 4) for i in range(12)]
SHAPES += [(24, 2), (60, 2)]  # probes: a new request on either path
PROBES = range(STREAMS, len(SHAPES))


def prompts(number):
    """The prompts of one set: [(text, tokens to draw)]; no two sets share a prefix."""
    return [(words(tokens, seed=1 + 1000 * number + i), out)
            for i, (tokens, out) in enumerate(SHAPES)]


@dataclasses.dataclass
class Outcome:
    kind: str = "none"  # answer, error (typed), broken, timeout
    text: str = ""
    finish: str = ""
    tokens: int = 0
    logprobs: list = dataclasses.field(default_factory=list)
    why: str = ""
    started: float = 0.0  # epoch seconds
    first: float = 0.0
    ended: float = 0.0


def ask(address, prompt, max_tokens, timeout):
    """One streamed completion.  A typed error is an HTTP status above 399 or an error event, with
    a type and a message; anything cut short is `broken`."""
    out = Outcome(started=time.time())
    host, port = address.split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=timeout)
    end = time.monotonic() + timeout
    try:
        body = {"model": MODEL_NAME, "prompt": prompt, "max_tokens": max_tokens, "temperature": 0,
                "logprobs": 1, "stream": True, "stream_options": {"include_usage": True}}
        connection.request("POST", "/v1/completions", json.dumps(body),
                           {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            error = json.loads(response.read())["error"]
            out.kind, out.why = "error", f"{response.status} {error['type']}: {error['message']}"
            return out
        while line := response.readline():
            connection.sock.settimeout(max(0.01, end - time.monotonic()))
            if take_line(out, line):
                return out
        out.kind, out.why = "broken", "the body ended without [DONE]"
    except (TimeoutError, socket.timeout):
        out.kind, out.why = "timeout", f"nothing for {timeout} s"
    except (OSError, http.client.HTTPException) as error:
        out.kind, out.why = "broken", repr(error)
    finally:
        out.ended = time.time()
        connection.close()
    return out


def take_line(out, line):
    """True at the stream's end."""
    if not line.startswith(b"data: "):
        return False
    data = line[6:].strip()
    if data == b"[DONE]":
        if out.kind != "error":
            out.kind = "answer"
        return True
    event = json.loads(data)
    if "error" in event:
        error = event["error"]
        out.kind, out.why = "error", f"{error['type']}: {error['message']}"
        return False
    for choice in event["choices"]:
        out.text += choice["text"]
        if choice.get("logprobs"):
            out.logprobs += choice["logprobs"]["token_logprobs"]
        out.finish = choice["finish_reason"] or out.finish
        if choice["text"] and not out.first:
            out.first = time.time()
    if event.get("usage"):
        out.tokens = event["usage"]["completion_tokens"]
    return False


class Streams:
    """Many at once, each on its own thread; `asked` is [(address, prompt, tokens, timeout)]."""

    def __init__(self, asked):
        self.outcomes = [None] * len(asked)
        self.threads = [threading.Thread(target=self._one, args=(i, one), daemon=True)
                        for i, one in enumerate(asked)]
        for thread in self.threads:
            thread.start()

    def _one(self, i, asked):
        self.outcomes[i] = ask(*asked)

    def join(self, seconds):
        end = time.monotonic() + seconds
        for thread in self.threads:
            thread.join(max(0.0, end - time.monotonic()))
        hanging = [i for i, o in enumerate(self.outcomes) if o is None]
        assert not hanging, f"streams hang after {seconds} s: {hanging}"
        return self.outcomes


class Reference:
    """What an undisturbed cluster answers, kept in a file of the build folder per binary."""

    def __init__(self, path, make_rig):
        self.make_rig = make_rig
        key = hashlib.sha256(FAILPOINTS.read_bytes()).hexdigest()[:16]
        self.path = path / f"reference-{key}.json"
        self.sets = {}
        if self.path.exists():
            self.sets = {int(k): v for k, v in json.loads(self.path.read_text()).items()}

    def prepare(self, numbers):
        missing = [n for n in numbers if n not in self.sets]
        if not missing:
            return
        with self.make_rig() as rig:
            address = rig.nodes["frontend-0"].address("http")
            for number in missing:
                outcomes = Streams([(address, *p, 120) for p in prompts(number)]).join(150)
                wrong = [o.why for o in outcomes if o.kind != "answer"]
                assert not wrong, f"the undisturbed run fails: {wrong}"
                self.sets[number] = [dataclasses.asdict(o) for o in outcomes]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self.path.with_suffix(".new")
        fresh.write_text(json.dumps(self.sets))
        fresh.rename(self.path)

    def differs(self, number, i, outcome):
        """Why an answer is not the undisturbed one; empty if it is."""
        right = self.sets[number][i]
        for field in ("text", "finish", "tokens", "logprobs"):
            if getattr(outcome, field) != right[field]:
                return (f"prompt {i} of set {number}: {field} {getattr(outcome, field)!r}, "
                        f"undisturbed {right[field]!r}")
        return ""
