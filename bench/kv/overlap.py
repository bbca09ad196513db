#!/usr/bin/env python3
# SPDX-FileCopyrightText: Baton developers
# SPDX-License-Identifier: Apache-2.0
"""How much of a push does computing hide?  Against theory, and against pushing a whole request.

    bench/kv/overlap.py [--tokens N] [--rounds N] [--json FILE]

Two "hosts" (tests/integration/two_hosts.py) with a real prefill and decode process; the link
between them is throttled so that computing a prompt takes 1/2, 1, 2 and 4 times as long as its
transfer.  Prints a Markdown table of medians, in milliseconds:

    compute, transfer   of the prompt: with one at a time (kv_transfer.pipelining: false)
    theory              the shortest exposed time: a layer cannot leave before it is computed, nor
                        before those ahead of it have left; L layers of equal work
    exposed             from the last layer computed to its last byte at decode, layer by layer
    whole               the same where nothing leaves before everything is computed

Needs root (ip netns, tc); exits 77 without.
"""

import argparse
import json
import pathlib
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "integration"))
import cluster  # noqa: E402
import two_hosts  # noqa: E402

LAYERS = 30  # of the default model
RATIOS = (0.5, 1, 2, 4)


def exposed_in_theory(compute, transfer):
    """The last of LAYERS layers; of a slower link, what is left once all but the first computed."""
    return max(transfer / LAYERS, transfer - compute * (LAYERS - 1) / LAYERS)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    cluster.require_model()
    seeds = iter(range(1, 1000))  # no prompt twice: nothing of it is cached

    def ask(roles):
        return roles.ask(next(seeds), args.tokens)["kv"]

    def median(answers, key):
        return statistics.median(answer[key] for answer in answers)

    with two_hosts.Hosts() as hosts:
        def at(speed, roles):
            hosts.throttle(speed)
            return [ask(roles) for _ in range(args.rounds)]

        with two_hosts.Roles(["kv_transfer.pipelining=false"]) as roles:
            ask(roles)  # the first prompt takes longer
            free = at(1e9, roles)
            compute = median(free, "compute_ms") / 1e3
            speeds = [free[0]["bytes"] * ratio / compute for ratio in RATIOS]
            whole = [at(speed, roles) for speed in speeds]
        hosts.throttle(1e9)  # while links come up
        with two_hosts.Roles() as roles:
            ask(roles)
            layered = [at(speed, roles) for speed in speeds]

    rows = []
    for ratio, speed, at_once, by_layers in zip(RATIOS, speeds, whole, layered):
        compute, transfer = median(by_layers, "compute_ms"), median(at_once, "transfer_ms")
        rows.append({"ratio": ratio, "bytes_per_second": speed, "compute_ms": compute,
                     "transfer_ms": transfer, "theory_ms": exposed_in_theory(compute, transfer),
                     "exposed_ms": median(by_layers, "exposed_ms"),
                     "whole_ms": median(at_once, "exposed_ms")})
    print("| compute : transfer | MB/s | compute | transfer | theory | exposed | whole |")
    print("| --: | --: | --: | --: | --: | --: | --: |")
    for row in rows:
        print(f"| {row['ratio']} | {row['bytes_per_second'] / 1e6:.1f} | {row['compute_ms']:.0f} "
              f"| {row['transfer_ms']:.0f} | {row['theory_ms']:.0f} | {row['exposed_ms']:.0f} "
              f"| {row['whole_ms']:.0f} |")
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
