#!/usr/bin/env python3
# SPDX-FileCopyrightText: Baton developers
# SPDX-License-Identifier: Apache-2.0
"""How much longer a step takes while other processes want the same cores.

    bench/engine/contention.py [--baton FILE] [--model FILE] [--threads N] [--busy N]
                               [--rounds N] [--what NAME]... [--json]

Runs `baton bench engine` in turns: alone, and beside --busy (2) processes that spin.  Prints
the medians of --rounds turns, in ms a step, and their ratio.  With T threads of ours and B
spinning processes of the same weight on C cores, a scheduler that shares evenly and an engine
that loses nothing to waiting would give (T + B) / C, at least 1 ("fair"); the goal is 2.5 for
2 threads beside 2 processes on 2 cores, where fair is 2.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Steps that a run times, to tell ms a step from its seconds.
STEPS = {"tg128": 128, "tg128@d2048": 128, "tg128xB8": 128, "tg128xB32": 128, "pp512": 1,
         "pp2048": 4, "mixed": 1}
SPIN = [sys.executable, "-c", "while True: pass"]


def step_ms(args, what):
    command = [args.baton, "bench", "engine", "--model", args.model, "--json", "--threads",
               str(args.threads), "--reps", "2", "--what", what]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or len(lines) != 1:
        sys.exit(f"{args.baton} bench engine --what {what}: exit code {done.returncode}")
    return 1000 * lines[0]["seconds"] / STEPS[what]


def beside_others(args, what):
    others = [subprocess.Popen(SPIN) for _ in range(args.busy)]
    try:
        return step_ms(args, what)
    finally:
        for other in others:
            other.kill()
            other.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--baton", default=ROOT / "build" / "baton")
    parser.add_argument("--model", default=ROOT / "models" / "smollm2-135m-instruct-q4_1.gguf")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--busy", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--what", action="append", choices=sorted(STEPS))
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    fair = max(1.0, (args.threads + args.busy) / len(os.sched_getaffinity(0)))
    if not args.json:
        print(f"{args.threads} threads, {args.busy} busy processes; fair: {fair:.2f}")
        print(f"{'':12} {'alone ms':>9} {'beside ms':>10} {'ratio':>6}")
    for what in args.what or ["tg128", "mixed"]:
        pairs = [(step_ms(args, what), beside_others(args, what)) for _ in range(args.rounds)]
        alone, beside = (statistics.median(values) for values in zip(*pairs))
        if args.json:
            print(json.dumps({"what": what, "alone_ms": alone, "beside_ms": beside,
                              "ratio": beside / alone, "fair": fair}), flush=True)
        else:
            print(f"{what:12} {alone:9.2f} {beside:10.2f} {beside / alone:6.2f}", flush=True)


if __name__ == "__main__":
    main()
