# SPDX-FileCopyrightText: Baton developers
# SPDX-License-Identifier: Apache-2.0

"""The fault matrix on real processes: {fault} x {role} x {moment} x {transport}, 16 streams each.

  matrix.py                         the pairwise choice: every pair of values at least once
  matrix.py --all                   all 336 cells
  matrix.py --fault kill --role decode --moment pushing --transport tcp
                                    the cells with these values (each may be repeated)
  matrix.py --all --shard 0/2       every second cell; another process may run 1/2
  matrix.py --table                 the table of this commit's results so far, runs nothing
  matrix.py --list                  the chosen cells
  matrix.py --reference             only makes the undisturbed answers, for shards to share

Results are kept per commit in build/faults/COMMIT/; cells that are green there are skipped
(--again runs them anyway).  See docs/testing.md.
"""

import argparse
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import time

import cells
from cell_run import CellRun
from rig import Rig
from streams import Reference

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
from cluster import BUILD, ROOT  # noqa: E402

SETS_PER_RIG = 8  # prompts of a cluster's life: no set comes twice, or its prefixes were cached


def commit():
    def git(*words):
        return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True,
                              text=True).stdout.strip()
    dirty = git("status", "--porcelain", "--untracked-files=no")
    return (git("rev-parse", "--short=12", "HEAD") or "unknown") + ("-dirty" if dirty else "")


class Results:
    """One JSON object per line and cell run; the last of a cell counts.  Shards append to the
    same file."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "results.jsonl"

    def read(self):
        latest = {}
        if self.path.exists():
            for line in self.path.read_text().splitlines():
                result = json.loads(line)
                latest[result["cell"]] = result
        return latest

    def add(self, result):
        line = (json.dumps(result) + "\n").encode()
        file = os.open(self.path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o644)
        os.write(file, line)
        os.close(file)


# ── the table ───────────────────────────────────────────────────────────────────────────────


def spread(values):
    return f"{statistics.median(values):.0f} / {max(values):.0f} ({len(values)})" if values else "-"


def measured(results, fault, transport):
    """Per fault and transport, of green cells: all values of each time."""
    times = {"front end": [], "peer": [], "freed": [], "served": [], "given back": []}
    for result in results.values():
        if not result["ok"]:
            continue
        name = result["cell"].split("/")
        if name[0] != fault or name[3] != transport:
            continue
        for node, ms in result.get("detected_ms", {}).items():
            times["front end" if node.startswith("frontend") else "peer"].append(ms)
        for key, field in (("freed", "freed_ms"), ("served", "served_ms"),
                           ("given back", "given_back_ms")):
            if field in result:
                times[key].append(result[field])
    return times


def mark(result):
    if result is None:
        return "."
    if result["ok"]:
        return "ok*" if result.get("rerun") else "ok"
    return "NOT REACHED" if any("not reached" in w for w in result["wrong"]) else "FAILED"


def table(results, name):
    total = len(cells.every_cell())
    green = sum(r["ok"] for r in results.values())
    lines = [f"# Fault matrix of {name}", "",
             f"{green} of {total} cells green, {len(results) - green} not, "
             f"{total - len(results)} not run.  `ok*`: run again once, because only limits in real "
             "time failed while the machine was busy with others.  The limit of *served* does not "
             "count what the processes on the request's path waited for a CPU.", ""]
    for transport in cells.TRANSPORTS:
        for role in cells.ROLES:
            lines += [f"## {role}, {transport}", "",
                      "| fault | " + " | ".join(cells.MOMENTS) + " |",
                      "| --- |" + " --- |" * len(cells.MOMENTS)]
            for fault in cells.FAULTS:
                row = [mark(results.get(cells.Cell(fault, role, moment, transport).name))
                       for moment in cells.MOMENTS]
                lines.append(f"| {fault} | " + " | ".join(row) + " |")
            lines.append("")
    lines += ["## Times", "",
              "ms after the fault, median / maximum (count).  *front end*, *peer*: until it was "
              "detected there; *freed*: a lost front end's attempts; *served*: the first token of "
              "a new request after detection; *given back*: survivors' blocks after the last "
              "stream's end and the fence.", "",
              "| fault | transport | front end | peer | freed | served | given back |",
              "| --- | --- | --- | --- | --- | --- | --- |"]
    for fault in cells.FAULTS:
        for transport in cells.TRANSPORTS:
            times = measured(results, fault, transport)
            lines.append(f"| {fault} | {transport} | " +
                         " | ".join(spread(v) for v in times.values()) + " |")
    slow = [r for r in results.values() if r["ok"] and r.get("served_ms", 0) > 2000]
    if slow:
        lines += ["", f"In {len(slow)} green cells the new request took more than 2 s, and less "
                  "without the wait for a CPU: others had it."]
    over = [r["overshoot_ms"] for r in results.values()]
    if over:
        lines += ["", f"A 10 ms sleep overshot by at most {spread(over)} ms per cell; others used "
                  f"{100 * statistics.median(r['foreign'] for r in results.values()):.0f} % of the "
                  f"CPUs in the median cell, {100 * max(r['foreign'] for r in results.values()):.0f}"
                  f" % in the worst; {sum(r.get('rerun', False) for r in results.values())} cells "
                  "were run again."]
    failed = [r for r in results.values() if not r["ok"]]
    if failed:
        lines += ["", "## Failures", ""]
        lines += [f"* `{r['cell']}`: {'; '.join((r['wrong'] + r['late'])[:3])[:600]}"
                  for r in failed]
    return "\n".join(lines) + "\n"


# ── the run ─────────────────────────────────────────────────────────────────────────────────


class Runner:
    def __init__(self, results, reference):
        self.results, self.reference = results, reference
        self.rig = None
        self.kind = None  # what the rig is: (hosts, transport)
        self.used = 0  # prompt sets of this rig
        self.failures = 0

    def rig_for(self, cell):
        kind = (cell.hosts, cell.transport)
        if self.rig is None or self.kind != kind or self.used == SETS_PER_RIG:
            self.drop_rig()
            self.rig = Rig(transport=cell.transport, hosts=cell.hosts, small_disks=not cell.hosts)
            self.kind, self.used = kind, 0
        self.used += 1
        return self.rig

    def drop_rig(self):
        if self.rig is None:
            return
        self.rig.close()
        left = self.rig.leftovers()
        self.rig = None
        if left:
            self.failures += 1
            print(f"FAILED  shared memory outlived its processes: {left}", flush=True)

    def run_once(self, cell):
        rig = self.rig_for(cell)
        result = CellRun(rig, cell, self.used - 1, self.reference).run()
        if not result["ok"]:
            rig.keep_logs(self.results.folder / "logs" / cell.name.replace("/", "-"))
            self.drop_rig()
        return result

    def run(self, cell):
        result = self.run_once(cell)
        # Never for wrong answers, leaks or crashes: only where nothing but the clock was wrong.
        if not result["ok"] and not result["wrong"] and result["disturbed"]:
            first = result
            result = self.run_once(cell)
            result["rerun"], result["first"] = True, first
        self.results.add(result)
        self.failures += not result["ok"]
        print(f"{'ok    ' if result['ok'] else 'FAILED'} {cell.name} ({result['seconds']:.1f} s, "
              f"overshoot {result['overshoot_ms']} ms, others {result['foreign']:.0%}"
              f"{', again' if result.get('rerun') else ''})", flush=True)
        for why in result["wrong"] + result["late"]:
            print("        " + why[:400], flush=True)


def choose(args):
    picked = {key: getattr(args, key) for key in cells.DIMENSIONS if getattr(args, key)}
    chosen = cells.every_cell() if args.all or picked else cells.pairwise()
    chosen = [c for c in cells.arrange(chosen)
              if all(getattr(c, key) in values for key, values in picked.items())]
    index, count = (int(x) for x in args.shard.split("/"))
    return chosen[index::count]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    for key, values in cells.DIMENSIONS.items():
        parser.add_argument(f"--{key}", action="append", choices=values)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--shard", default="0/1", metavar="I/N")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--reference", action="store_true")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # clusters are taken down
    name = commit()
    results = Results(BUILD / "faults" / name)
    chosen = choose(args)
    if args.list:
        print("\n".join(c.name for c in chosen))
        return 0
    failures = 0
    if not args.table:
        reference = Reference(BUILD / "faults", lambda: Rig(prefill=1, decode=1, frontends=1))
        reference.prepare(range(SETS_PER_RIG))
        if args.reference:
            return 0
        done = {n for n, r in results.read().items() if r["ok"]} if not args.again else set()
        todo = [c for c in chosen if c.name not in done]
        print(f"{len(todo)} cells to run, {len(chosen) - len(todo)} are green on {name}", flush=True)
        runner = Runner(results, reference)
        start = time.monotonic()
        try:
            for cell in todo:
                runner.run(cell)
        finally:
            runner.drop_rig()
        failures = runner.failures
        print(f"{len(todo)} cells in {time.monotonic() - start:.0f} s, {failures} failures")
    latest = results.read()
    text = table(latest, name)
    (results.folder / "table.md").write_text(text)
    (results.folder / "table.json").write_text(json.dumps(latest, indent=1))
    if args.table:
        print(text)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
