# SPDX-FileCopyrightText: Baton developers
# SPDX-License-Identifier: Apache-2.0

"""What the tests of field reports share: a small cluster, clients that misbehave, gauges."""

import contextlib
import http.client
import json
import pathlib
import re
import socket
import struct
import subprocess
import sys
import time

from rig import Rig

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
from cluster import FAILPOINTS, MODEL_NAME, run  # noqa: E402


@contextlib.contextmanager
def rig(**options):
    """One front end, one prefill, one decode unless said otherwise; logs are shown on failure."""
    options = {"prefill": 1, "decode": 1, "frontends": 1, **options}
    with Rig(**options) as made:
        try:
            yield made
        except Exception:
            made.show_logs()
            raise
    assert not made.leftovers(), made.leftovers()


def front(made):
    return made.nodes["frontend-0"].address("http")


def idle(made, seconds, workers=None):
    """Nothing belongs to a request on any worker, and every gauge of the front end is 0."""
    def rest():
        busy = dict(made.busy_blocks(workers or made.workers()))
        for node in made.of("frontend"):
            m = node.metrics()
            for gauge in ("baton_requests_running", "baton_requests_waiting"):
                if m.sum(gauge):
                    busy[node.name] = gauge
        return busy
    end = time.monotonic() + seconds
    while busy := rest():
        assert time.monotonic() < end, f"not idle after {seconds} s: {busy}"
        time.sleep(0.02)


def computed(made, name="prefill-0"):
    return made.nodes[name].metrics().sum("baton_prompt_tokens_total", source="computed")


def requests(made, **labels):
    return made.nodes["frontend-0"].metrics().sum("baton_requests_total", **labels)


def outcomes(made):
    m = made.nodes["frontend-0"].metrics()
    return {o: int(m.sum("baton_requests_total", outcome=o))
            for o in ("stop", "length", "cancelled", "rejected", "error", "timeout")}


def post(address, body, timeout=60, headers=()):
    """(status, headers, JSON) of one completion that is not streamed."""
    connection = http.client.HTTPConnection(address, timeout=timeout)
    try:
        connection.request("POST", "/v1/completions",
                           json.dumps({"model": MODEL_NAME, "temperature": 0, **body}),
                           {"Content-Type": "application/json", **dict(headers)})
        response = connection.getresponse()
        return response.status, response.headers, json.loads(response.read())
    finally:
        connection.close()


def open_stream(address, prompt, max_tokens, stream=True):
    """A socket with a request on its way."""
    body = json.dumps({"model": MODEL_NAME, "prompt": prompt, "max_tokens": max_tokens,
                       "temperature": 0, "stream": stream})
    host, port = address.split(":")
    s = socket.create_connection((host, int(port)), timeout=30)
    s.sendall((f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
               f"Content-Length: {len(body)}\r\n\r\n{body}").encode())
    return s


def fin(s):
    s.close()


def rst(s):
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()


def grpc_call(made, prompt, max_tokens, *flags):
    return subprocess.Popen([str(FAILPOINTS), "generate", "--grpc",
                             made.nodes["frontend-0"].address("grpc"), "--raw", "--json",
                             "--temperature", "0", "--prompt", prompt, "--max-tokens",
                             str(max_tokens), *flags], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE)


def hash_of(*parts):
    value = 7
    for c in repr(parts).encode():
        value = (value * 31 + c) % 1000003
    return value


def run_rows(names):
    """Runs the test functions c<row>_… of a module's globals, in the order of their rows."""
    run(*[f for name, f in sorted(names.items()) if re.match(r"c\d+_", name)])
