# SPDX-FileCopyrightText: Baton developers
# SPDX-License-Identifier: Apache-2.0

"""One cell of the matrix: a fault at a proven moment under 16 streams, and what must hold then."""

import signal
import socket
import time

from machine import Watch, cpu_waits
from rig import HOLD_MAX, NotReached, wait_for
from streams import PROBES, STREAMS, Streams, ask, prompts

AWAY_SECONDS = 5.0  # stop5 and partition
DEADLINE = 60  # of a client whose front end lives
LOST_DEADLINE = 12  # of one whose front end is the victim
STREAMS_END = 75  # when every stream must have ended somehow

# The failpoint of each moment: who is held, where.
HOLD = {
    "reserving": ("decode", "decode.reserved"),
    "prefilling": ("prefill", "prefill.half_computed"),
    "pushing": ("prefill", "prefill.half_written"),
    "committing": ("prefill", "prefill.all_written"),
    "first-token": ("decode", "decode.first_token"),
    "mid-decode": ("decode", "decode.fourth_token"),
}
DRAINING_HOLD = {"frontend": "first-token", "prefill": "prefilling", "decode": "mid-decode"}

SILENT = ("stop", "stop5", "partition")  # no connection breaks: only silence tells
DEATHS = ("kill", "port-in-use")
# Seconds from the fault until the last survivor must have seen it.
DETECTED_WITHIN = {True: 2.6, False: 1.0}  # by whether the fault is silent
SERVED_WITHIN = 2.0  # first token of a new request after that
FREED_WITHIN = 3.0  # a lost front end's attempts
WHOLE_WITHIN = 20.0  # after the victim was started again
GIVEN_BACK_WITHIN = 1.0  # blocks, after the last stream ended and the fence


class CellRun:
    def __init__(self, rig, cell, number, reference):
        self.rig, self.cell, self.number, self.reference = rig, cell, number, reference
        self.victim = rig.nodes[f"{cell.role}-0"]
        self.survivors = [n for n in rig.nodes.values() if n is not self.victim]
        self.front = rig.nodes["frontend-1"]  # never the victim
        self.wrong, self.late = [], []  # what broke; which limits in real time did
        self.measured = {}
        self.strangers = []
        self.draining = cell.moment == "draining"

    # ── the course of a cell ────────────────────────────────────────────────────────────────

    def run(self):
        rig = self.rig
        started = time.monotonic()
        for node in rig.nodes.values():
            node.mark_log()
        before = {n.name: n.pid for n in self.survivors}
        watch = Watch([n.pid for n in rig.nodes.values()])
        try:
            self.reach_and_strike()
            self.see_detection()
            self.probe()
            self.come_back()
            outcomes = self.streams.join(STREAMS_END)
            self.check_answers(outcomes)
            self.check_blocks(max(o.ended for o in outcomes))
            self.end_fault()
            self.check_processes(before)
            self.heal()
        except NotReached as error:
            self.wrong.append(f"not reached: {error}")
        except (AssertionError, OSError) as error:
            self.wrong.append(f"{type(error).__name__}: {error}; ended: " + str(
                {n.name: n.process.poll() for n in rig.nodes.values() if not n.alive()}))
        finally:
            rig.release()
            self.leave_ports()
        watch.stop([n.pid for n in rig.nodes.values() if n.alive()])
        return {"cell": self.cell.name, "ok": not self.wrong and not self.late,
                "wrong": self.wrong, "late": self.late, "seconds": time.monotonic() - started,
                "overshoot_ms": watch.overshoot_ms, "foreign": watch.foreign,
                "disturbed": watch.disturbed, **self.measured}

    def start_streams(self):
        """Half of them at each front end; where one is the victim, it has all but the short ones,
        so that what its loss frees can be told from what others still use."""
        asked = []
        self.of_victim = set()
        for i, (prompt, tokens) in enumerate(prompts(self.number)[:STREAMS]):
            lost = i >= 4 if self.cell.role == "frontend" else i % 2 == 0
            front = self.rig.nodes["frontend-0"] if lost else self.front
            if front is self.victim:
                self.of_victim.add(i)
            asked.append((front.address("http"), prompt, tokens,
                          LOST_DEADLINE if front is self.victim else DEADLINE))
        self.streams = Streams(asked)

    def points(self, moment):
        """Where to hold: (node, failpoint, what it must be about), so that it is the victim's."""
        role, name = HOLD[moment]
        victim = self.victim
        if victim.role == role:
            return [(victim, name, "")]
        about = ""
        if victim.role == "frontend":
            about = victim.incarnation()
        elif name == "decode.reserved" or victim.role == "decode":
            about = victim.name
        return [(node, name, about) for node in self.rig.of(role)]

    def reach_and_strike(self):
        if self.cell.moment == "idle":
            wait_for(lambda: not self.rig.busy_blocks(self.rig.workers()), 3, "the cluster is idle")
            self.strike()
            self.start_streams()
            return
        moment = DRAINING_HOLD[self.cell.role] if self.draining else self.cell.moment
        self.rig.arm(self.points(moment))
        self.start_streams()
        held, at = self.rig.wait_held(20)
        self.measured["held"] = held.name.removesuffix(".held").split(".", 1)[1]
        if self.draining:
            self.victim.send(signal.SIGTERM)
            wait_for(lambda: self.victim.events(r"Z INFO draining"), 0.8, "the victim drains",
                     0.005)
            self.rig.release()
            time.sleep(0.03)  # the role's loop turns
            if not self.victim.alive():
                raise NotReached("the victim had nothing left to do when it was to drain")
        elif time.time() - at > HOLD_MAX:
            raise NotReached("the test was too slow for the moment it held")
        self.strike()
        self.rig.release()

    def strike(self):
        self.struck = time.time()
        fault, victim = self.cell.fault, self.victim
        if fault in DEATHS:
            victim.send(signal.SIGKILL)
            victim.process.wait()
        elif fault in ("stop", "stop5"):
            victim.send(signal.SIGSTOP)
        elif fault == "term":
            victim.send(signal.SIGTERM)
        elif fault == "partition":
            self.rig.hosts.cut(victim.name)
        elif fault == "disk-full":
            victim.disk.fill()
        if fault == "port-in-use":
            self.take_ports()

    # ── a stranger on the victim's ports ────────────────────────────────────────────────────

    def take_ports(self):
        for kind in self.victim.ports:
            stranger = socket.socket()
            stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            address = (self.victim.host, self.victim.ports[kind])
            wait_for(lambda: not _refuses(stranger, address), 2, f"the port {kind} is free")
            stranger.listen()
            self.strangers.append(stranger)
        self.rig.start(self.victim)
        wait_for(lambda: not self.victim.alive(), 15, "a start on a port in use ends")
        code = self.victim.process.returncode
        words = self.victim.matching(r"^baton: ")
        if code != 69 or len(words) != 1 or str(self.victim.ports["admin"]) not in words[0]:
            self.wrong.append(f"started on a port in use: exit {code}, {words}")

    def leave_ports(self):
        for stranger in self.strangers:
            stranger.close()
        self.strangers = []

    # ── detection and new requests ──────────────────────────────────────────────────────────

    def see_detection(self):
        """Waits until each survivor that deals with the victim has seen the fault."""
        fault, victim = self.cell.fault, self.victim
        if fault in ("disk-full", "term") or victim.role == "frontend":
            if victim.role == "frontend" and fault not in ("disk-full", "term"):
                self.see_attempts_freed()
            else:
                time.sleep(0.3)
            return
        silent = fault in SILENT
        state = r"state=dead" if silent else r"state=(dead|suspect)"
        wanted = {n.name: rf"\bworker={victim.name} {state}" for n in self.rig.of("frontend")}
        other = "decode" if victim.role == "prefill" else "prefill"
        for node in self.rig.of(other):
            wanted[node.name] = rf"link down .*peer={victim.name}\b"
        seen = {}

        def all_seen():
            for name, pattern in wanted.items():
                if name not in seen and (at := self.rig.nodes[name].events(pattern, self.struck)):
                    seen[name] = at[0]
            return len(seen) == len(wanted)

        limit = DETECTED_WITHIN[silent]
        try:
            wait_for(all_seen, 8, "every survivor sees the fault", 0.01)
        except AssertionError as error:
            raise AssertionError(f"{error}: {sorted(set(wanted) - set(seen))} do not") from None
        self.measured["detected_ms"] = {name: round((at - self.struck) * 1000)
                                        for name, at in seen.items()}
        worst = max(seen.values()) - self.struck
        if worst > limit:
            self.late.append(f"detected after {worst:.2f} s, limit {limit} s")

    def see_attempts_freed(self):
        """The workers of a lost front end own nothing of its attempts soon after."""
        others = [i for i in range(STREAMS) if i not in self.of_victim]
        if self.cell.moment == "idle":
            time.sleep(0.3)
            return

        def freed():
            return not self.rig.busy_blocks(self.rig.workers())

        wait_for(freed, 12, "the workers free a lost front end's attempts", 0.03)
        now = time.time()
        ends = [self.streams.outcomes[i].ended for i in others if self.streams.outcomes[i]]
        others_end = max(ends, default=now) if len(ends) == len(others) else now
        self.measured["freed_ms"] = round((now - self.struck) * 1000)
        limit = max(self.struck + FREED_WITHIN, others_end + GIVEN_BACK_WITHIN)
        if now > limit:
            self.late.append(f"a lost front end's attempts freed after {now - self.struck:.2f} s")

    def probe(self):
        """New requests, short and long, at a front end that lives."""
        texts = prompts(self.number)
        first, starved = [], []
        for i in PROBES:
            before = cpu_waits([n.pid for n in self.survivors])
            out = ask(self.front.address("http"), *texts[i], DEADLINE)
            starved.append(self.starvation(before))
            if out.kind != "answer":
                self.wrong.append(f"a new request: {out.kind} {out.why}")
                continue
            if why := self.reference.differs(self.number, i, out):
                self.wrong.append(f"a new request: {why}")
            first.append(out.first - out.started)
        if first:
            self.measured["served_ms"] = round(max(first) * 1000)
            self.measured["starved_ms"] = round(max(starved) * 1000)
            if max(f - s for f, s in zip(first, starved)) > SERVED_WITHIN:
                self.late.append(f"a new request's first token after {max(first):.2f} s, of which "
                                 f"{max(starved):.2f} s without a CPU")

    def starvation(self, before):
        """Seconds since `before` in which the path of a request was ready to run and had no CPU:
        of the front end, the prefills and the decodes, the most starved thread of each role."""
        total = 0.0
        for role in ("frontend", "prefill", "decode"):
            after = cpu_waits([n.pid for n in self.survivors if n.role == role])
            total += max(wait - before.get(thread, 0.0) for thread, wait in after.items())
        return total

    def come_back(self):
        fault = self.cell.fault
        if fault in ("stop5", "partition"):
            time.sleep(max(0.0, self.struck + AWAY_SECONDS - time.time()))
        if fault == "stop5":
            self.victim.send(signal.SIGCONT)
        elif fault == "partition":
            self.rig.hosts.join(self.victim.name)
        self.back = time.time()

    # ── what must hold ──────────────────────────────────────────────────────────────────────

    def check_answers(self, outcomes):
        fault = self.cell.fault
        spared = fault == "disk-full" or (fault == "term" and not self.draining)
        for i, out in enumerate(outcomes):
            if out.kind == "answer":
                if why := self.reference.differs(self.number, i, out):
                    self.wrong.append(why)
            elif i not in self.of_victim or spared:
                if self._refused_by_drain(i, out):
                    continue
                self.wrong.append(f"stream {i}: {out.kind} {out.why} after "
                                  f"{out.ended - out.started:.1f} s")
        kinds = [o.kind for o in outcomes]
        self.measured["outcomes"] = {k: kinds.count(k) for k in sorted(set(kinds))}

    def _refused_by_drain(self, i, out):
        """A client that comes to a front end that drains, or is gone, is told so or refused."""
        came_late = out.started > self.struck - 0.5 or self.draining
        return (self.cell.role == "frontend" and i in self.of_victim and not out.text and
                (self.draining or self.cell.fault == "term") and came_late and
                (out.kind == "broken" or out.why.startswith("503")))

    def check_blocks(self, ended):
        """Survivors own nothing; only what a silent writer may still write is in quarantine."""
        fault = self.cell.fault
        owners = [n for n in self.rig.workers() if n is not self.victim]
        allowed = ()
        if fault == "stop" and self.cell.role == "prefill" and self.cell.transport == "shm":
            allowed = tuple(n.name for n in owners)
        if fault in ("stop5", "partition"):
            self.rejoin()
        wait_for(lambda: not self.rig.busy_blocks(owners, allowed), 10,
                 f"survivors give back: {self.rig.busy_blocks(owners, allowed)}")
        now = time.time()
        fence = max(ended, self.back)
        self.measured["given_back_ms"] = round((now - fence) * 1000)
        if now - fence > GIVEN_BACK_WITHIN:
            self.late.append(f"survivors gave back after {now - fence:.2f} s")
        for node in owners:
            blocks = node.blocks()
            if blocks["quarantined"]:
                self.measured["quarantined"] = blocks["quarantined"]
                if blocks["quarantined"] > sum(blocks.values()) // 4:
                    self.wrong.append(f"{node.name}: quarantine above its cap: {blocks}")

    def rejoin(self):
        """After a silence: all links up again; the fence of a writer is its Quiet."""
        if self.victim.alive() and not self.draining:
            self.rig.wait_whole_again(15)
        else:
            wait_for(lambda: not self.victim.alive(), 25, "the victim ends")
        self.back = time.time()

    def end_fault(self):
        fault = self.cell.fault
        if fault == "disk-full":
            self.victim.disk.empty()
        if fault == "stop":
            self.victim.send(signal.SIGKILL)
            self.victim.process.wait()
            killed = time.time()
            owners = [n for n in self.rig.workers() if n is not self.victim]
            wait_for(lambda: not self.rig.busy_blocks(owners), 10,
                     "quarantine ends with its writer")
            self.measured["quarantine_over_ms"] = round((time.time() - killed) * 1000)
            if time.time() - killed > GIVEN_BACK_WITHIN:
                self.late.append(f"quarantine outlived its writer by {time.time() - killed:.2f} s")

    def check_processes(self, before):
        for node in self.survivors:
            if not node.alive() or node.pid != before[node.name]:
                self.wrong.append(f"{node.name} ended: {node.process.poll()}")
        if self.cell.fault in DEATHS:
            return
        expected = None
        if self.cell.fault == "stop":
            expected = -signal.SIGKILL
        elif self.draining:
            expected = 128 + signal.SIGTERM if self.cell.fault == "term" else 0
        elif self.cell.fault == "term":
            expected = 0
        if expected is not None:
            wait_for(lambda: not self.victim.alive(), 25, "the victim ends")
        code = self.victim.process.poll()
        if code != expected:
            self.wrong.append(f"the victim's exit is {code}, expected {expected}")

    def heal(self):
        self.leave_ports()
        if not self.victim.alive():
            self.rig.start(self.victim)
        started = time.time()
        self.rig.wait_whole(90)  # a model loads in a second, or in thirty where others compute
        self.measured["whole_ms"] = round((time.time() - started) * 1000)
        if time.time() - started > WHOLE_WITHIN:
            self.late.append(f"whole again after {time.time() - started:.0f} s")
        wait_for(lambda: not self.rig.busy_blocks(self.rig.workers()), 3,
                 "the whole cluster owns nothing")


def _refuses(stranger, address):
    try:
        stranger.bind(address)
        return False
    except OSError:
        return True
