# SPDX-FileCopyrightText: Baton developers
# SPDX-License-Identifier: Apache-2.0

"""The cells of the fault matrix: every combination, and the pairwise choice of them."""

import collections
import dataclasses
import itertools

FAULTS = ["kill", "stop5", "stop", "term", "partition", "disk-full", "port-in-use"]
ROLES = ["frontend", "prefill", "decode"]
MOMENTS = ["idle", "reserving", "prefilling", "pushing", "committing", "first-token",
           "mid-decode", "draining"]
TRANSPORTS = ["shm", "tcp"]
DIMENSIONS = {"fault": FAULTS, "role": ROLES, "moment": MOMENTS, "transport": TRANSPORTS}

# What each value means, as the table's legend.
MEANING = {
    "kill": "kill -9",
    "stop5": "SIGSTOP, SIGCONT after 5 s",
    "stop": "SIGSTOP for ever (killed at the cell's end)",
    "term": "SIGTERM; while draining: the second one",
    "partition": "cut off from everyone, no packet answered, joined again after 5 s",
    "disk-full": "the file system of its log is full",
    "port-in-use": "kill -9; a stranger takes its ports; started again: exit 69; then freed",
    "idle": "no request is in the cluster; the streams start with the fault",
    "reserving": "decode has taken the blocks and not yet answered (decode.reserved)",
    "prefilling": "half of the layers are computed (prefill.half_computed)",
    "pushing": "half of the layers are written (prefill.half_written)",
    "committing": "all is written, Commit not yet sent (prefill.all_written)",
    "first-token": "decode has drawn token 1 (decode.first_token)",
    "mid-decode": "decode has drawn token 4 (decode.fourth_token)",
    "draining": "after SIGTERM, with work left",
}


@dataclasses.dataclass(frozen=True)
class Cell:
    fault: str
    role: str
    moment: str
    transport: str

    @property
    def name(self):
        return f"{self.fault}/{self.role}/{self.moment}/{self.transport}"

    def values(self):
        return (self.fault, self.role, self.moment, self.transport)

    @property
    def hosts(self):
        """Runs with a network namespace per process."""
        return self.fault == "partition"


def every_cell():
    """All 336.  None is left out: each of them means something.  Where the victim takes no part
    in the moment (a prefill after token 1, any front end), it is the moment of a request that
    went through the victim."""
    return [Cell(*values) for values in itertools.product(*DIMENSIONS.values())]


def pairwise():
    """Few cells that hold every pair of values of two dimensions at least once.

    Greedy and deterministic: each time the cell that covers most pairs still missing; of equal
    ones the one whose values were chosen least so far, then the first."""
    cells = every_cell()
    pairs_of = {cell: {((i, a), (j, b)) for (i, a), (j, b)
                       in itertools.combinations(enumerate(cell.values()), 2)} for cell in cells}
    missing = set().union(*pairs_of.values())
    chosen = []
    used = collections.Counter()
    while missing:
        best = max(cells, key=lambda cell: (len(pairs_of[cell] & missing),
                                            -sum(used[v] for v in cell.values())))
        chosen.append(best)
        used.update(best.values())
        missing -= pairs_of[best]
    return chosen


def arrange(cells):
    """Cells that can share a cluster stand together."""
    return sorted(cells, key=lambda c: (c.hosts, c.transport))
