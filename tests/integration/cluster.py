# SPDX-FileCopyrightText: Baton developers
# SPDX-License-Identifier: Apache-2.0

"""A real cluster of processes for the integration tests, and how to talk to it.

Only the Python standard library.  Ports are free ones, so that tests may run beside anything.
Everything is seen from outside: the binary's commands, HTTP, /metrics (the surface that users
rely on), never the program's insides.
"""

import contextlib
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("BATON_BUILD", ROOT / "build"))
BATON = BUILD / "baton"
FAILPOINTS = pathlib.Path(os.environ.get("BATON_FAILPOINTS_BINARY",
                                         ROOT / "build-failpoints" / "baton"))
MODEL = ROOT / "models" / "smollm2-135m-instruct-q4_1.gguf"
MODEL_NAME = "smollm2-135m-instruct"
LAYERS = 30
# K and V, kv heads, tokens, bytes of a row (head dim 64); int8 rows have a scale.
BLOCK_BYTES = {"bf16": 2 * 3 * 16 * 64 * 2, "f16": 2 * 3 * 16 * 64 * 2, "f32": 2 * 3 * 16 * 64 * 4,
               "int8": 2 * 3 * 16 * (64 + 4)}
SKIP = 77


def skip(why):
    print("SKIPPED:", why)
    sys.exit(SKIP)


def require_model():
    if not MODEL.exists():
        skip(f"{MODEL} is not there (deploy/get_model.sh)")


def free_ports(count):
    """Ports that were free a moment ago, all different."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in sockets]
    finally:
        for s in sockets:
            s.close()


def config_text(prefill=1, decode=1, kv_memory="256MiB", threads=1, model=MODEL, host="127.0.0.1"):
    ports = iter(free_ports(3 + 3 * (prefill + decode)))
    place = lambda: f"{host}:{next(ports)}"
    lines = ["version: 1", f"model: {{path: {model}, name: {MODEL_NAME}}}",
             "kv_transfer: {check_one_in: 1}",
             f"frontend: {{http: {place()}, grpc: {place()}, admin: {place()}}}", "workers:"]
    for role, count in (("prefill", prefill), ("decode", decode)):
        lines.append(f"  {role}:" + (" []" if count == 0 else ""))
        for i in range(count):
            lines.append(f"    - {{name: {role}-{i}, listen: {place()}, admin: {place()}, "
                         f"transfer: {place()}, threads: {threads}, kv_memory: {kv_memory}}}")
    return "\n".join(lines) + "\n"


class Cluster(contextlib.AbstractContextManager):
    """`baton up` with its own configuration; stops it at the end and shows its log on failure."""

    def __init__(self, prefill=1, decode=1, sets=(), kv_memory="256MiB", binary=None, env=None,
                 up_flags=(), ready_s=90, model=MODEL, host="127.0.0.1"):
        if model == MODEL:
            require_model()
        self.binary = str(binary or BATON)
        self.folder = tempfile.TemporaryDirectory(prefix="baton-test-")
        self.path = pathlib.Path(self.folder.name)
        (self.path / "cluster.yaml").write_text(
            config_text(prefill, decode, kv_memory, model=model, host=host))
        self.log_path = self.path / "log.txt"
        self.ready_path = self.path / "ready.json"
        command = [self.binary, "up", "--config", str(self.path / "cluster.yaml"), "--ready-file",
                   str(self.ready_path), *up_flags]
        for value in sets:
            command += ["--set", value]
        self.sets = list(sets)
        self.log = open(self.log_path, "wb")
        self.process = subprocess.Popen(command, stdout=self.log, stderr=subprocess.STDOUT,
                                        env={**os.environ, **(env or {})})
        end = time.monotonic() + ready_s
        while not (self.ready_path.exists() and self.ready_path.stat().st_size):
            if self.process.poll() is not None or time.monotonic() > end:
                self.show_log()
                self.stop()
                raise RuntimeError(f"the cluster is not ready (exit {self.process.poll()})")
            time.sleep(0.05)
        self.read_ready()

    def read_ready(self):
        self.ready = json.loads(self.ready_path.read_text())
        self.grpc = self.ready["grpc"]
        self.http = self.ready["http"].removeprefix("http://").rstrip("/")
        self.roles = {r["name"]: r for r in self.ready["roles"]}

    def admin(self, name):
        return self.roles[name]["admin"].removeprefix("http://").rstrip("/")

    def names(self, role):
        return [n for n, r in self.roles.items() if r["role"] == role]

    def pid(self, name):
        """The role's process now; the ready file has the first ones only."""
        pid = self.roles[name]["pid"]
        for line in self.text_log().splitlines():
            if match := re.search(rf"\brestarted name={name}\b.*\bpid=(\d+)", line):
                pid = int(match.group(1))
        return pid

    def kill(self, name, how=signal.SIGKILL):
        os.kill(self.pid(name), how)

    def text_log(self):
        self.log.flush()
        return self.log_path.read_text(errors="replace")

    def show_log(self, lines=60):
        print("\n".join(self.text_log().splitlines()[-lines:]), file=sys.stderr)

    def stop(self, how=signal.SIGINT, timeout=40):
        if self.process.poll() is None:
            self.process.send_signal(how)
            try:
                self.process.wait(timeout)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        return self.process.returncode

    def __exit__(self, kind, *rest):
        if kind is not None:
            self.show_log()
        self.stop()
        self.log.close()
        self.folder.cleanup()

    # ── asking ──────────────────────────────────────────────────────────────────────────────

    def generate(self, prompt, **flags):
        """One `baton generate --json`; raises with stderr if it fails."""
        done = self.generate_process(prompt, **flags)
        if done.returncode != 0:
            raise RuntimeError(f"generate exit {done.returncode}: {done.stderr.decode()}")
        return json.loads(done.stdout)

    def generate_process(self, prompt, timeout=300, **flags):
        prompt_file = self.path / f"prompt-{threading.get_ident()}-{time.monotonic_ns()}"
        prompt_file.write_text(prompt)
        command = [self.binary, "generate", "--grpc", self.grpc, "--json", "--prompt-file",
                   str(prompt_file)]
        for name, value in flags.items():
            flag = "--" + name.replace("_", "-")
            command += [flag] if value is True else [flag, str(value)]
        done = subprocess.run(command, capture_output=True, timeout=timeout)
        prompt_file.unlink()
        return done

    def connection(self, timeout=300):
        return http.client.HTTPConnection(self.http, timeout=timeout)

    def post(self, path, body, timeout=300):
        """(status, headers, parsed JSON) of one POST."""
        connection = self.connection(timeout)
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        data = response.read()
        connection.close()
        return response.status, response.headers, json.loads(data)

    def metrics(self, name):
        status, text = http_get(self.admin(name), "/metrics")
        assert status == 200, status
        return Metrics(text)

    def kv_blocks(self, name):
        return self.metrics(name).kv_blocks()

    def idle(self, names=None):
        """True if nothing is used, reserved or quarantined on the workers, and all are there."""
        for name in names or self.names("prefill") + self.names("decode"):
            try:
                blocks = self.kv_blocks(name)
            except ConnectionError:  # being restarted
                return False
            if blocks["used"] or blocks["reserved"] or blocks["quarantined"]:
                return False
        return True

    def wait_idle(self, seconds, names=None):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.idle(names):
                return
            time.sleep(0.02)
        names = names or self.names("prefill") + self.names("decode")
        assert self.idle(names), {name: self.kv_blocks(name) for name in names}


def http_get(address, path, timeout=10):
    """(status, text) of one GET."""
    connection = http.client.HTTPConnection(address, timeout=timeout)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


class Metrics:
    """A Prometheus text page: samples by name and labels."""

    LINE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)")
    LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

    def __init__(self, text):
        self.text = text
        self.samples = []
        for line in text.splitlines():
            if match := self.LINE.match(line):
                self.samples.append((match[1], dict(self.LABEL.findall(match[2] or "")),
                                     float(match[3])))

    def find(self, name, **labels):
        return [(l, v) for n, l, v in self.samples
                if n == name and all(l.get(k) == x for k, x in labels.items())]

    def sum(self, name, **labels):
        return sum(v for _, v in self.find(name, **labels))

    def kv_blocks(self):
        return {state: int(self.sum("baton_kv_blocks", state=state))
                for state in ("free", "used", "cached", "reserved", "quarantined")}


WORDS = (" one two three four five six seven eight nine ten red green blue black white sun moon "
         "star sea ship river stone tree leaf bird fish horse house road city night day winter "
         "summer snow rain wind fire water").split(" ")[1:]


def words(count, seed=1):
    """A text of exactly `count` tokens: common words are one token each (checked by the caller
    through prompt_tokens)."""
    state = seed
    out = []
    for _ in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        out.append(" " + WORDS[(state >> 33) % len(WORDS)])
    return "".join(out)


def rss_bytes(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"no VmRSS of {pid}")


def memory_bytes(pid, pool_bytes):
    """Resident bytes: private and shared memory together, and what of it are KV pools, the
    process's own and those of peers that it writes to: the mappings of that size or more."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    both = sum(int(re.search(rf"^Rss{kind}:\s+(\d+) kB", status, re.M)[1]) * 1024
               for kind in ("Anon", "Shmem"))
    pools = 0
    size = 0
    for line in pathlib.Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if match := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            size = int(match[2], 16) - int(match[1], 16)
        elif size >= pool_bytes and (match := re.match(r"Rss:\s+(\d+) kB", line)):
            pools += int(match[1]) * 1024
    return both, pools


def run(*tests):
    """Runs test functions in order, or those named on the command line; exits 1 if one fails."""
    wanted = sys.argv[1:]
    failed = 0
    for test in tests:
        if wanted and test.__name__ not in wanted:
            continue
        start = time.monotonic()
        try:
            test()
            print(f"ok      {test.__name__} ({time.monotonic() - start:.1f} s)", flush=True)
        except Exception as error:  # noqa: BLE001 - reported, and the run goes on
            failed += 1
            import traceback
            traceback.print_exc()
            print(f"FAILED  {test.__name__}: {error}", flush=True)
    sys.exit(1 if failed else 0)
