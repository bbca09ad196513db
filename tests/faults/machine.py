# SPDX-FileCopyrightText: Baton developers
# SPDX-License-Identifier: Apache-2.0

"""How much of the machine a cell really had: limits in real time mean nothing without it."""

import os
import pathlib
import subprocess
import sys

TICKS = os.sysconf("SC_CLK_TCK")
OVERSHOOT_MS = 100  # of a 10 ms sleep: from here on a time-out of 200 ms proves nothing
FOREIGN_SHARE = 0.25  # of the cores, used by processes that are not the test's

# A process of its own: threads of the test would measure Python's lock.
SLEEPER = """
import select, sys, time
worst = 0.0
while True:
    start = time.monotonic()
    if select.select([sys.stdin], [], [], 0.01)[0]:
        break
    worst = max(worst, time.monotonic() - start - 0.01)
print(worst)
"""


def _busy_ticks():
    fields = [int(f) for f in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return sum(fields) - fields[3] - fields[4], sum(fields)


def _own_seconds(pids):
    t = os.times()
    own = t.user + t.system + t.children_user + t.children_system
    for pid in pids:
        try:
            stat = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        own += (int(stat[11]) + int(stat[12])) / TICKS
    return own


def cpu_waits(pids):
    """{(pid, thread): seconds in which it was ready to run and had no CPU}."""
    waits = {}
    for pid in pids:
        try:
            for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
                waits[pid, task.name] = int((task / "schedstat").read_text().split()[1]) / 1e9
        except (OSError, IndexError):
            continue
    return waits


class Watch:
    """From construction to stop(): the sleeper's worst overshoot, and others' share of the CPUs."""

    def __init__(self, pids):
        self.sleeper = subprocess.Popen([sys.executable, "-c", SLEEPER], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE)
        self.busy, self.total = _busy_ticks()
        self.own = _own_seconds(pids)

    def stop(self, pids):
        busy, total = _busy_ticks()
        own = _own_seconds(pids) - self.own
        worst = self.sleeper.communicate(b"x")[0]
        foreign = ((busy - self.busy) / TICKS - own) / max(1e-9, (total - self.total) / TICKS)
        self.overshoot_ms = round(float(worst) * 1000)
        self.foreign = round(max(0.0, foreign), 2)

    @property
    def disturbed(self):
        return self.overshoot_ms >= OVERSHOOT_MS or self.foreign >= FOREIGN_SHARE
