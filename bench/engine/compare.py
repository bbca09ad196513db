#!/usr/bin/env python3
# SPDX-FileCopyrightText: Baton developers
# SPDX-License-Identifier: Apache-2.0
"""Measures `baton bench engine` against llama.cpp's own tools, taking turns.

    bench/engine/compare.py --llama-bin DIR [--model FILE]... [--threads N] [--rounds N]
                            [--what NAME]... [--baton FILE] [--isa NAME] [--json FILE]

DIR holds llama-bench and llama-batched-bench of a llama.cpp build (Release, for this CPU,
or without AVX-512 for --isa avx2).  Each round runs one measurement by one engine and then
by the other, so that a busy minute hits both.  A sample beside which other processes used
more than --others of the processors is taken again, --retries times at most; what was left
of them is in the table.

Prints one Markdown table, a line as soon as it is measured: medians in tokens per second,
their ratio, the limit of the machine, and what part of its read bandwidth and of its peak
of operations the median is.  --json appends a JSON line per measurement to FILE.
"""

import argparse
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import time

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
TICKS = os.sysconf("SC_CLK_TCK")
CPUS = os.cpu_count()


def busy_seconds():
    """CPU time of all processes, and of our children."""
    fields = [int(field) for field in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    user, nice, system, _, _, irq, softirq, steal = fields[:8]
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ((user + nice + system + irq + softirq + steal) / TICKS,
            children.ru_utime + children.ru_stime)


def json_lines(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    if done.returncode != 0:
        sys.exit(f"{command[0]}: exit code {done.returncode}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def baton(args, model, what):
    command = [args.baton, "bench", "engine", "--model", model, "--json", "--reps", "1",
               "--threads", str(args.threads), "--what", what]
    if args.isa:
        command += ["--isa", args.isa]
    line = json_lines(command)[0]
    return line["tok_s"], line


def llama(args, model, what):
    prompt, generate, depth, sequences = MEASUREMENTS[what]
    common = ["-m", model, "-t", str(args.threads)]
    if sequences == 1:
        rows = json_lines([f"{args.llama_bin}/llama-bench", *common, "-p", str(prompt), "-n",
                           str(generate), "-d", str(depth), "-r", "1", "-o", "jsonl"])
        return rows[0]["samples_ts"][0], None
    rows = json_lines([f"{args.llama_bin}/llama-batched-bench", *common, "-tb", str(args.threads),
                       "-c", str(sequences * (prompt + generate)), "-npp", str(prompt),
                       "-ntg", str(generate), "-npl", str(sequences),
                       "--output-format", "jsonl"])
    return rows[0]["speed_tg"], None


def sample(args, engine, model, what):
    """The sample with the fewest others beside it, of as many as it takes."""
    best = None
    for _ in range(args.retries + 1):
        all_before, own_before = busy_seconds()
        start = time.monotonic()
        tok_s, line = engine(args, model, what)
        wall = time.monotonic() - start
        all_after, own_after = busy_seconds()
        others = max(0.0, (all_after - all_before) - (own_after - own_before)) / (wall * CPUS)
        if best is None or others < best[2]:
            best = (tok_s, line, others)
        if others <= args.others:
            break
    return best


def compare(args, model, what):
    ours, theirs = [], []
    for _ in range(args.rounds):
        ours.append(sample(args, baton, model, what))
        theirs.append(sample(args, llama, model, what))
    ours.sort(key=lambda s: s[0])
    median = ours[len(ours) // 2]
    peer = statistics.median(s[0] for s in theirs)
    line = median[1]
    return {"model": pathlib.Path(model).stem, "what": what, "isa": line["isa"],
            "threads": args.threads, "rounds": args.rounds, "baton": round(median[0], 1),
            "llama_cpp": round(peer, 1), "ratio": round(median[0] / peer, 2),
            "limit": round(line.get("limit_tok_s", 0), 0),
            "read_gb_s": round(line["bytes_per_s"] / 1e9, 1),
            "read_share": round(line.get("read_share", 0), 2),
            "gop_s": round(line["ops_per_s"] / 1e9),
            "peak_share": round(line.get("layer_peak_share", 0), 2),
            "peak_read_gb_s": round(line.get("peak_read_bytes_per_s", 0) / 1e9, 1),
            "peak_int8_gop_s": round(line.get("peak_int8_ops_per_s", 0) / 1e9),
            "peak_float_gop_s": round(line.get("peak_float_ops_per_s", 0) / 1e9),
            "others": round(max(s[2] for s in ours + theirs), 2)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--llama-bin", required=True)
    parser.add_argument("--model", action="append")
    parser.add_argument("--baton", default=str(ROOT / "build/baton"))
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--what", action="append", choices=MEASUREMENTS)
    parser.add_argument("--isa")
    parser.add_argument("--others", type=float, default=0.05)
    parser.add_argument("--retries", type=int, default=2)
    parser.add_argument("--json")
    args = parser.parse_args()
    models = args.model or [str(ROOT / "models/smollm2-135m-instruct-q4_1.gguf")]
    print("| model | isa | what | baton | llama.cpp | ratio | limit | GB/s | of read | Gop/s "
          "| of peak | others |")
    print("|---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
    for model in models:
        for what in args.what or MEASUREMENTS:
            row = compare(args, model, what)
            print("| {model} | {isa} | {what} | {baton} | {llama_cpp} | {ratio} | {limit:.0f} "
                  "| {read_gb_s} | {read_share:.0%} | {gop_s} | {peak_share:.0%} "
                  "| {others:.0%} |".format(**row), flush=True)
            if args.json:
                with open(args.json, "a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
