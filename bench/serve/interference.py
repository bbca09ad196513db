#!/usr/bin/env python3
# SPDX-FileCopyrightText: Baton developers
# SPDX-License-Identifier: Apache-2.0
"""Do long prompts disturb running answers?  Baton, and llama-server beside it, in one run.

    bench/serve/interference.py [--llama-bin DIR] [--model FILE] [--rounds N] [--set KEY=VALUE]...
                                [--json FILE] [the options of load.py]

Starts a cluster of one front end, one prefill and one decode process with one compute thread
each; with --llama-bin also llama-server with two threads, once as it comes and once with
`-b 256 -ub 256`, its best setting for this.  Each round runs one after the other on the same
prompts and arrivals, so that a busy minute is not one server's alone.

Prints a Markdown table: time to first token of the long prompts, gaps of the steady streams
before and while, their tokens per second, then the seconds of CPU time of each process, of the
load generator and of everything else, and what a host took from this virtual machine (stolen).
A row with much of `others` or `stolen` compares with nothing.
`waits`: seconds in which threads of a process were ready to run and had no processor.
"""

import argparse
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tests" / "integration"))
sys.path.insert(0, str(HERE))
import cluster  # noqa: E402
import load  # noqa: E402

TICKS = os.sysconf("SC_CLK_TCK")
BEST_FOR_THIS = ["-b", "256", "-ub", "256"]


def cpu_of(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def waits_of(pid):
    """Seconds that threads which still run stood in a run queue."""
    total = 0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            total += int((task / "schedstat").read_text().split()[1])
    return total / 1e9


def machine():
    """Seconds in which the processors worked, and in which the host gave them to others."""
    fields = [int(f) for f in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return (sum(fields[:7]) - fields[3] - fields[4]) / TICKS, fields[7] / TICKS


class Usage:
    """CPU time from its making on, of named processes, of the load generator and of the rest."""

    def __init__(self, pids):
        self.pids = pids
        self.first = self.now()

    def now(self):
        own = os.times()
        busy, stolen = machine()
        values = {"all": busy, "stolen": stolen, "client": own.user + own.system}
        for name, pid in self.pids.items():
            values[name] = cpu_of(pid)
            values["waits " + name] = waits_of(pid)
        return values

    def report(self):
        last = self.now()
        values = {name: round(last[name] - self.first[name], 2) for name in last}
        everything = values.pop("all")
        values["others"] = round(max(0.0, everything - sum(
            v for k, v in values.items() if k != "stolen" and not k.startswith("waits"))), 2)
        return values


@contextlib.contextmanager
def baton(args):
    with cluster.Cluster(sets=args.set, binary=args.baton) as started:
        yield f"http://{started.http}", cluster.MODEL_NAME, {n: started.pid(n) for n in started.roles}


def llama(flags):
    @contextlib.contextmanager
    def start(args):
        port = cluster.free_ports(1)[0]
        command = [f"{args.llama_bin}/llama-server", "-m", args.model, "--host", "127.0.0.1",
                   "--port", str(port), "-t", "2", "-tb", "2", "-c", "32768", "--parallel", "8",
                   "--alias", "model", *flags]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            url = f"http://127.0.0.1:{port}"
            wait_until_healthy(process, url)
            yield url, "model", {"llama-server": process.pid}
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)
    return start


def wait_until_healthy(process, url):
    end = time.monotonic() + 60
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError):
            if urllib.request.urlopen(url + "/health", timeout=2).status == 200:
                return
        time.sleep(0.2)
    sys.exit("llama-server does not start")


def measure(start, args, seed):
    with start(args) as (url, model, pids):
        client = load.Client(url, model)
        usage = Usage(pids)
        args.seed = seed
        out = load.interference(client, args)
        out["cpu_s"] = usage.report()
        return out


def row(name, out):
    long, before, during = out["long_ttft_ms"], out["steady_before"], out["steady_while"]
    gap = lambda part: (" / ".join(f"{part['gap_ms'][p]:.0f}" for p in ("p50", "p99", "max"))
                        if part["gap_ms"] else "-")
    cpu = " ".join(f"{k} {v:.1f}" for k, v in out["cpu_s"].items() if not k.startswith("waits "))
    waits = " ".join(f"{v:.1f}" for k, v in out["cpu_s"].items() if k.startswith("waits "))
    ttft = f"{long['p50']:.0f} / {long['max']:.0f}" if long else "-"
    return (f"| {name} | {ttft} | {gap(before)} | {gap(during)} | {during['over_twice_median']} "
            f"| {before['tokens_per_s']:.0f} → {during['tokens_per_s']:.0f} | {cpu} | {waits} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--llama-bin", help="folder of llama-server")
    parser.add_argument("--model", default=str(cluster.MODEL), help="for llama-server")
    parser.add_argument("--baton", default=str(cluster.BATON))
    parser.add_argument("--set", action="append", default=[], help="for baton")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--json", help="a line per run is appended to this file")
    load.add_options(parser)
    args = parser.parse_args()
    servers = {"baton": baton}
    if args.llama_bin:
        servers["llama-server"] = llama([])
        servers["llama-server " + " ".join(BEST_FOR_THIS)] = llama(BEST_FOR_THIS)
    print("| server | long TTFT p50 / max, ms | steady gap p50 / p99 / max before, ms | while, ms "
          "| over twice the median | tokens/s before → while | CPU s | waits s |")
    print("|---|--:|--:|--:|--:|--:|---|---|")
    failed = False
    first = args.seed
    for seed in range(first, first + args.rounds):
        for name, start in servers.items():
            out = measure(start, args, seed)
            failed = failed or bool(out["errors"])
            print(row(name, out), flush=True)
            for error in out["errors"]:
                print(f"{name}: {error}", file=sys.stderr)
            if args.json:
                with open(args.json, "a", encoding="utf-8") as file:
                    file.write(json.dumps({"server": name, "seed": seed, **out}) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
