#!/usr/bin/env python3
# SPDX-FileCopyrightText: Baton developers
# SPDX-License-Identifier: Apache-2.0
"""Measures `baton bench engine` against llama.cpp's own tools, taking turns.

    bench/engine/compare.py --llama-bin DIR [--model FILE] [--threads N] [--rounds N]
                            [--what NAME]... [--baton FILE] [--isa NAME]

DIR holds llama-bench and llama-batched-bench of a llama.cpp build (Release, for this CPU).
Each round runs one measurement by one engine and then by the other, so that a busy minute
hits both.  Prints a JSON line per measurement: the medians, the best, their ratio, and the
machine's load average before it.  Numbers from a busy machine say little.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

# name: prompt tokens, generated tokens, depth, sequences
MEASUREMENTS = {
    "pp512": (512, 0, 0, 1),
    "pp2048": (2048, 0, 0, 1),
    "tg128": (0, 128, 0, 1),
    "tg128@d2048": (0, 128, 2048, 1),
    "tg128xB8": (128, 128, 0, 8),
    "tg128xB32": (128, 128, 0, 32),
}


def json_lines(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    if done.returncode != 0:
        sys.exit(f"{command[0]}: exit code {done.returncode}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def baton(args, what):
    command = [args.baton, "bench", "engine", "--model", args.model, "--json", "--reps", "1",
               "--threads", str(args.threads), "--what", what]
    if args.isa:
        command += ["--isa", args.isa]
    return json_lines(command)[0]


def llama(args, what):
    prompt, generate, depth, sequences = MEASUREMENTS[what]
    common = ["-m", args.model, "-t", str(args.threads)]
    if sequences == 1:
        rows = json_lines([f"{args.llama_bin}/llama-bench", *common, "-p", str(prompt), "-n",
                           str(generate), "-d", str(depth), "-r", "1", "-o", "jsonl"])
        return rows[0]["samples_ts"][0]
    rows = json_lines([f"{args.llama_bin}/llama-batched-bench", *common, "-tb", str(args.threads),
                       "-c", str(sequences * (prompt + generate)), "-npp", str(prompt),
                       "-ntg", str(generate), "-npl", str(sequences),
                       "--output-format", "jsonl"])
    return rows[0]["speed_tg"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--llama-bin", required=True)
    parser.add_argument("--model", default=str(ROOT / "models/smollm2-135m-instruct-q4_1.gguf"))
    parser.add_argument("--baton", default=str(ROOT / "build/baton"))
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--what", action="append", choices=MEASUREMENTS)
    parser.add_argument("--isa")
    args = parser.parse_args()
    for what in args.what or MEASUREMENTS:
        load = os.getloadavg()[0]
        ours, theirs = [], []
        for _ in range(args.rounds):
            line = baton(args, what)
            ours.append(line["tok_s"])
            theirs.append(llama(args, what))
        row = {"what": what, "baton": round(statistics.median(ours), 1),
               "baton_best": round(max(ours), 1), "llama_cpp": round(statistics.median(theirs), 1),
               "llama_cpp_best": round(max(theirs), 1),
               "ratio": round(statistics.median(ours) / statistics.median(theirs), 2),
               "ratio_best": round(max(ours) / max(theirs), 2), "rounds": args.rounds,
               "threads": args.threads, "isa": line["isa"], "load": round(load, 1)}
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
