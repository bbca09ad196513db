#!/usr/bin/env python3
# SPDX-FileCopyrightText: Baton developers
# SPDX-License-Identifier: Apache-2.0
"""Perplexity of one text by Baton and by llama.cpp, for each weight type of the default model.

  LLAMA_BIN=FOLDER tests/data/perplexity.py --text FILE [--windows N] [--kv TYPE] [TYPE…]

The files come from tests/data/quantize.sh; types whose file is missing are named and left out.
Both sides score the second halves of the same windows of 512 tokens.  Prints a table in
Markdown.  Exit code 1: some type is further than --tolerance (0.5 %) from llama.cpp's.
Without LLAMA_BIN only Baton's column is made.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
TYPES = "f32 f16 bf16 q8_0 q4_0 q4_1 q5_0 q5_1 q4_k_m q5_k_m q6_k".split()


def peer(model, options):
    """llama.cpp's final value; it keeps K and V as f16."""
    binary = pathlib.Path(os.environ["LLAMA_BIN"]) / "llama-perplexity"
    command = [binary, "-m", model, "-f", options.text, "-c", "512", "-t", str(options.threads),
               "--chunks", str(options.windows)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(re.search(r"Final estimate: PPL = ([0-9.]+)", done.stdout + done.stderr)[1])


def ours(model, options):
    command = [options.baton, "perplexity", "--model", model, "--text", options.text,
               "--windows", str(options.windows), "--threads", str(options.threads),
               "--kv-type", options.kv, "--isa", options.isa]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])["perplexity"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("types", nargs="*", default=TYPES)
    parser.add_argument("--text", required=True)
    parser.add_argument("--windows", type=int, default=24)
    parser.add_argument("--kv", default="bf16", help="Baton's KV type")
    parser.add_argument("--isa", default="auto")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--baton", default=ROOT / "build" / "baton")
    parser.add_argument("--tolerance", type=float, default=0.005)
    options = parser.parse_args()
    with_peer = "LLAMA_BIN" in os.environ
    print("| weights | Baton | llama.cpp | difference |\n| --- | --- | --- | --- |")
    good = True
    for name in options.types:
        model = ROOT / "models" / f"smollm2-135m-instruct-{name}.gguf"
        if not model.exists():
            print(f"perplexity: {model} is missing (tests/data/quantize.sh)", file=sys.stderr)
            continue
        mine = ours(model, options)
        row = f"| {name} | {mine:.4f} |"
        if with_peer:
            theirs = peer(model, options)
            good = good and abs(mine / theirs - 1) <= options.tolerance
            row += f" {theirs:.4f} | {100 * (mine / theirs - 1):+.2f} % |"
        print(row if with_peer else row + " | |", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
