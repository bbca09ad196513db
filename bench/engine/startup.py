#!/usr/bin/env python3
# SPDX-FileCopyrightText: Baton developers
# SPDX-License-Identifier: Apache-2.0
"""How long a worker and a cluster take from start to ready, and what memory a worker then has.

    bench/engine/startup.py [--baton FILE] [--model FILE] [--reps N] [--threads N]
                            [--kv-memory SIZE] [--json]

Time: from the exec of `baton serve` until its admin port answers /ready with 200, for a worker
of each role; and from the exec of `baton up` until the front end's /ready does, and until `up`
itself says so (all roles, all links).  The model's file is read once before, so that it is in
the page cache.  Medians of --reps starts, each on free ports.

Memory: of each worker of the last cluster, when ready and after some requests, one of them long
enough to be handed over: RssAnon + RssShmem of /proc/PID/status, and what is left of it without
the packed weights (the log's weight_bytes) and the touched pages of KV pools, the worker's own
and those of peers that it writes to (smaps: mappings of the size of a pool).
"""

import argparse
import contextlib
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROBE_S = 0.002
GIVE_UP_S = 120
ROLES = ("prefill", "decode")


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def write_config(args, path):
    """The cluster of config/local.yaml on free ports; admin port by role."""
    ports = free_ports(9)
    place = [f"127.0.0.1:{port}" for port in ports]
    worker = "threads: %d, kv_memory: %s" % (args.threads, args.kv_memory)
    path.write_text(f"""version: 1
model: {{path: {args.model}, name: model}}
frontend: {{http: {place[0]}, grpc: {place[1]}, admin: {place[2]}}}
workers:
  prefill:
    - {{name: p, listen: {place[3]}, admin: {place[4]}, transfer: {place[5]}, {worker}}}
  decode:
    - {{name: d, listen: {place[6]}, admin: {place[7]}, transfer: {place[8]}, {worker}}}
""")
    return {"frontend": ports[2], "prefill": ports[4], "decode": ports[7], "grpc": place[1]}


def is_ready(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
    try:
        connection.request("GET", "/ready")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


@contextlib.contextmanager
def started(command, log):
    process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_until(process, condition, log):
    end = time.monotonic() + GIVE_UP_S
    while not condition():
        if process.poll() is not None or time.monotonic() > end:
            log.flush()
            sys.exit(f"not ready: {pathlib.Path(log.name).read_text(errors='replace')[-2000:]}")
        time.sleep(PROBE_S)


def time_role(args, folder, role):
    admin = write_config(args, folder / "one.yaml")[role]
    with open(folder / "log", "wb") as log:
        start = time.monotonic()
        command = [args.baton, "serve", "--role", role, "--config", folder / "one.yaml"]
        with started(command, log) as process:
            wait_until(process, lambda: is_ready(admin), log)
            return time.monotonic() - start


def memory_of(pid, weights, pool_bytes):
    """Resident bytes: private, shared, of KV pools (in one of the two), and the rest."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    sizes = {key.lower(): int(re.search(rf"^Rss{key}:\s+(\d+) kB", status, re.M)[1]) << 10
             for key in ("Anon", "Shmem")}
    sizes["pools"] = size = 0
    for line in pathlib.Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if match := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            size = int(match[2], 16) - int(match[1], 16)
        elif size >= pool_bytes and (match := re.match(r"Rss:\s+(\d+) kB", line)):
            sizes["pools"] += int(match[1]) << 10
    sizes["rest"] = sizes["anon"] + sizes["shmem"] - weights - sizes["pools"]
    return sizes


def ask(args, grpc, words):
    subprocess.run([args.baton, "generate", "--grpc", grpc, "--prompt",
                    "the sea and the stone " * (words // 5), "--raw", "--max-tokens", "32"],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def memory_report(args, ports, log_text, roles):
    weights = int(re.search(r"weight_bytes=(\d+)", log_text)[1])
    pids = {role["role"]: role["pid"] for role in roles}
    number, unit = re.fullmatch(r"(\d+)([MG])iB", args.kv_memory).groups()
    pool_bytes = (int(number) << (20 if unit == "M" else 30)) * 9 // 10  # in whole blocks
    report = {"weight_bytes": weights}
    for moment in ("ready", "after"):
        if moment == "after":
            for words in (20, 20, 1500, 200):
                ask(args, ports["grpc"], words)
        report[moment] = {role: memory_of(pids[role], weights, pool_bytes)
                          for role in ("prefill", "decode")}
    return report


def time_cluster(args, folder, with_memory):
    ports = write_config(args, folder / "all.yaml")
    ready_file = folder / "ready.json"
    ready_file.unlink(missing_ok=True)
    with open(folder / "log", "wb") as log:
        start = time.monotonic()
        command = [args.baton, "up", "--config", folder / "all.yaml", "--ready-file", ready_file]
        with started(command, log) as process:
            wait_until(process, lambda: is_ready(ports["frontend"]), log)
            frontend = time.monotonic() - start
            wait_until(process, ready_file.exists, log)
            everything = time.monotonic() - start
            memory = None
            if with_memory:
                roles = json.loads(ready_file.read_text())["roles"]
                memory = memory_report(args, ports, (folder / "log").read_text(), roles)
    return frontend, everything, memory


def measure(args, folder):
    pathlib.Path(args.model).read_bytes()  # into the page cache
    seconds = {role: [time_role(args, folder, role) for _ in range(args.reps)] for role in ROLES}
    clusters = [time_cluster(args, folder, rep + 1 == args.reps) for rep in range(args.reps)]
    seconds["up: front end"] = [one[0] for one in clusters]
    seconds["up: everything"] = [one[1] for one in clusters]
    return seconds, clusters[-1][2]


def show(seconds, memory):
    print(f"{'start to ready':16} {'median':>8} {'best':>8} {'worst':>8}  s")
    for name, values in seconds.items():
        print(f"{name:16} {statistics.median(values):8.3f} {min(values):8.3f} "
              f"{max(values):8.3f}")
    mib = 1 << 20
    print(f"\nresident, MiB (packed weights: {memory['weight_bytes'] / mib:.1f})")
    print(f"{'':16} {'private':>8} {'shared':>8} {'of pools':>8} {'rest':>8}")
    for moment in ("ready", "after"):
        for role, sizes in memory[moment].items():
            print(f"{moment + ' ' + role:16}" +
                  "".join(f" {sizes[key] / mib:8.1f}" for key in ("anon", "shmem", "pools", "rest")))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--baton", default=ROOT / "build" / "baton")
    parser.add_argument("--model", default=ROOT / "models" / "smollm2-135m-instruct-q4_1.gguf")
    parser.add_argument("--reps", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--kv-memory", default="512MiB", help="in MiB or GiB")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    args.baton = os.path.abspath(args.baton)
    args.model = os.path.abspath(args.model)
    with tempfile.TemporaryDirectory(prefix="baton-startup-") as folder:
        seconds, memory = measure(args, pathlib.Path(folder))
    if args.json:
        print(json.dumps({"seconds": seconds, "memory": memory}))
    else:
        show(seconds, memory)


if __name__ == "__main__":
    main()
