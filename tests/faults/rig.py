# SPDX-FileCopyrightText: Baton developers
# SPDX-License-Identifier: Apache-2.0

"""A cluster of `baton serve` processes that the tests start, stop, freeze and cut off themselves.

Two front ends, two prefill and two decode workers of one configuration, on loopback or each in
a network namespace of its own ("hosts").  Nothing restarts a process but the test.  The binary is
the one with failpoints, so that a test can hold a process at a named moment (base/failpoint.h).
"""

import contextlib
import datetime
import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
from cluster import (FAILPOINTS, MODEL, MODEL_NAME, Metrics, http_get,  # noqa: E402
                     require_model, skip)

KV_MEMORY = "96MiB"
SETS = ["router.colocate_below_tokens=32", "kv_transfer.progress_timeout=5s", "limits.drain=20s",
        "engine.chunk_tokens=128", "kv_transfer.check_one_in=1"]
HOLD_MAX = 0.9  # base/failpoint.cc lets go after 1 s


class NotReached(Exception):
    """The moment of a cell did not come."""


def sh(*words, check=True):
    return subprocess.run(words, check=check, capture_output=True, text=True)


def wait_for(condition, seconds, what, every=0.02):
    end = time.monotonic() + seconds
    while True:
        if value := condition():
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(every)


def quiet_ports(count):
    """Free ports below those that the kernel gives to connections: a role that is started again
    finds its own still free."""
    first = 10000 + os.getpid() % 100 * 200
    ports = []
    for port in itertools.chain(range(first, 32000), range(10000, first)):
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                s.bind(("127.0.0.1", port))
            except OSError:
                continue
        ports.append(port)
        if len(ports) == count:
            return ports
    raise RuntimeError("no free ports")


class Hosts:
    """A bridge in the test's own network namespace with one namespace per process behind it.

    A host is cut off without a word: its bridge port stops forwarding, no carrier is lost and
    no packet is answered."""

    DEVICE = "eth0"
    made = itertools.count()

    def __init__(self, names):
        self.prefix = f"bf{os.getpid() % 10000}{chr(97 + next(Hosts.made) % 26)}"
        self.bridge = self.prefix + "b"
        taken = sh("ip", "-4", "-o", "addr").stdout
        nets = [f"198.18.{(os.getpid() + i) % 256}" for i in range(256)]
        self.net = next(net for net in nets if f" {net}." not in taken)
        self.address = {}
        self.spaces = {}
        try:
            self.make(names)
        except BaseException:
            self.close()
            raise
        time.sleep(1)  # addresses and carrier settle; UCX takes only devices that run

    def make(self, names):
        if sh("ip", "link", "add", self.bridge, "type", "bridge", check=False).returncode != 0:
            skip("cannot make network namespaces here")
        sh("ip", "addr", "add", f"{self.net}.1/24", "dev", self.bridge)
        sh("ip", "link", "set", self.bridge, "up")
        for i, name in enumerate(names):
            space = self.spaces[name] = f"{self.prefix}-{name}"
            self.address[name] = f"{self.net}.{10 + i}"
            sh("ip", "netns", "add", space)
            sh("ip", "link", "add", self.port(name), "type", "veth", "peer", "name", self.DEVICE,
               "netns", space)
            sh("ip", "link", "set", self.port(name), "master", self.bridge)
            sh("ip", "link", "set", self.port(name), "up")
            sh("ip", "-n", space, "addr", "add", f"{self.address[name]}/24", "dev", self.DEVICE)
            sh("ip", "-n", space, "link", "set", self.DEVICE, "up")
            sh("ip", "-n", space, "link", "set", "lo", "up")

    def port(self, name):
        return f"{self.prefix}{list(self.spaces).index(name)}"

    def cut(self, name):
        sh("bridge", "link", "set", "dev", self.port(name), "state", "0")

    def join(self, name):
        sh("bridge", "link", "set", "dev", self.port(name), "state", "3")

    def close(self):
        for name, space in self.spaces.items():
            sh("ip", "link", "del", self.port(name), check=False)
            sh("ip", "netns", "del", space, check=False)
        sh("ip", "link", "del", self.bridge, check=False)


class SmallDisk:
    """A file system of 2 MiB for one process's log; it can be filled to the last byte."""

    def __init__(self, path):
        self.path = path
        path.mkdir()
        sh("mount", "-t", "tmpfs", "-o", "size=2m", "baton-faults", str(path))

    def fill(self):
        with open(self.path / "ballast", "wb", buffering=0) as ballast:
            try:
                while True:
                    ballast.write(b"x" * 4096)
            except OSError:
                pass

    def empty(self):
        (self.path / "ballast").unlink(missing_ok=True)

    def close(self):
        sh("umount", "-l", str(self.path), check=False)


class Node:
    """One process of the cluster."""

    STAMP = re.compile(r"^(\d{4}-\d\d-\d\dT[\d:.]+)Z ")

    def __init__(self, rig, name, role, ports):
        self.rig, self.name, self.role = rig, name, role
        self.host = rig.hosts.address[name] if rig.hosts else "127.0.0.1"
        self.ports = ports  # {"http": …, "grpc": …, "admin": …} or {"listen", "admin", "transfer"}
        folder = rig.path
        if rig.small_disks:
            self.disk = SmallDisk(rig.path / f"disk-{name}")
            folder = self.disk.path
        self.log_path = folder / f"{name}.log"
        self.process = None
        self.starts = 0
        self.mark = 0  # in the log

    def address(self, port):
        return f"{self.host}:{self.ports[port]}"

    def command(self):
        words = [str(FAILPOINTS), "serve", "--role", self.role, "--config",
                 str(self.rig.path / "cluster.yaml")]
        if self.role == "frontend":
            for port in self.ports:
                words += ["--set", f"frontend.{port}={self.address(port)}"]
        else:
            words += ["--name", self.name]
        for value in self.rig.sets + self.rig.sets_of.get(self.name, []):
            words += ["--set", value]
        if self.rig.hosts:
            words = ["ip", "netns", "exec", self.rig.hosts.spaces[self.name], *words]
        return words

    def start(self):
        self.starts += 1
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                self.command(), stdout=log, stderr=log,
                env={**os.environ, "BATON_HOLDPOINTS": str(self.rig.holds)})

    @property
    def pid(self):
        return self.process.pid  # `ip netns exec` becomes the program

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def send(self, number):
        os.kill(self.pid, number)

    def get(self, path, timeout=5):
        return http_get(f"{self.host}:{self.ports['admin']}", path, timeout)

    def metrics(self):
        return Metrics(self.get("/metrics")[1])

    def blocks(self):
        return self.metrics().kv_blocks()

    def incarnation(self):
        """Of the process's latest start, as it logged it."""
        return re.findall(r"\bstarting\b.*\bincarnation=([0-9a-f]{16})", self.text())[-1]

    def text(self):
        return self.log_path.read_text(errors="replace")

    def mark_log(self):
        """events() looks from here on."""
        self.mark = self.log_path.stat().st_size

    def lines(self):
        with open(self.log_path, "rb") as log:
            log.seek(self.mark)
            return log.read().decode(errors="replace").splitlines()

    def matching(self, pattern):
        return [line for line in self.lines() if re.search(pattern, line)]

    def events(self, pattern, since=0.0):
        """Times (epoch seconds) of the log records after `since` that match."""
        times = []
        for line in self.lines():
            if (stamp := self.STAMP.match(line)) and re.search(pattern, line):
                at = datetime.datetime.fromisoformat(stamp[1] + "+00:00").timestamp()
                if at >= since:
                    times.append(at)
        return times


class Rig(contextlib.AbstractContextManager):
    def __init__(self, transport="shm", hosts=False, small_disks=False, prefill=2, decode=2,
                 frontends=2, sets=(), kv_memory=KV_MEMORY, whole=True, sets_of=None):
        """`whole`: wait until all is up.  `sets_of`: further --set words of single processes."""
        require_model()
        if not FAILPOINTS.exists():
            skip(f"{FAILPOINTS} is not built (tests/run.sh faults)")
        if (hosts or small_disks) and os.geteuid() != 0:
            skip("needs root for network namespaces and small disks")
        self.path = pathlib.Path(tempfile.mkdtemp(prefix="baton-faults-"))
        self.holds = self.path / "holds"
        self.holds.mkdir()
        self.small_disks = small_disks
        self.kv_memory = kv_memory
        self.sets_of = sets_of or {}
        self.segments_before = shared_memory()
        names = ([f"frontend-{i}" for i in range(frontends)] +
                 [f"prefill-{i}" for i in range(prefill)] + [f"decode-{i}" for i in range(decode)])
        self.hosts = Hosts(names) if hosts else None
        self.transport = transport
        self.sets = [*SETS, f"kv_transfer.transport={transport}", *sets]
        if hosts:
            self.sets.append(f"kv_transfer.devices=[{Hosts.DEVICE}]")
        self.nodes = {}
        free = iter(quiet_ports(3 * len(names)))
        for name in names:
            role = name.split("-")[0]
            kinds = ("http", "grpc", "admin") if role == "frontend" else ("listen", "admin",
                                                                           "transfer")
            self.nodes[name] = Node(self, name, role, {kind: next(free) for kind in kinds})
        (self.path / "cluster.yaml").write_text(self.config_text())
        self.pids = set()
        for node in self.nodes.values():
            self.start(node)
        try:
            if whole:
                self.wait_whole(60)
        except BaseException:
            self.close()
            raise

    def config_text(self):
        front = self.nodes["frontend-0"]
        place = lambda node: ", ".join(f"{kind}: {node.address(kind)}" for kind in node.ports)
        lines = ["version: 1", f"model: {{path: {MODEL}, name: {MODEL_NAME}}}",
                 f"frontend: {{{place(front)}}}", "workers:"]
        for role in ("prefill", "decode"):
            lines.append(f"  {role}:")
            for node in self.of(role):
                lines.append(f"    - {{name: {node.name}, {place(node)}, threads: 1, "
                             f"kv_memory: {self.kv_memory}}}")
        return "\n".join(lines) + "\n"

    def of(self, role):
        return [n for n in self.nodes.values() if n.role == role]

    def workers(self):
        return self.of("prefill") + self.of("decode")

    def start(self, node):
        node.start()
        self.pids.add(node.pid)

    # ── states ──────────────────────────────────────────────────────────────────────────────

    def why_not_whole(self):
        """Empty if every process serves and every front end sees all workers and links."""
        for node in self.nodes.values():
            if not node.alive():
                return f"{node.name} has ended: {node.process.returncode}"
        links = {"prefill": len(self.of("decode")), "decode": len(self.of("prefill"))}
        try:
            for front in self.of("frontend"):
                detail = json.loads(front.get("/health")[1])["detail"]
                workers = detail["workers"] or {}
                away = [w.name for w in self.workers() if workers.get(w.name) != "ready"]
                lost = {(l["pool"], l["state"]): int(v) for l, v
                        in front.metrics().find("baton_peers") if v and l["state"] != "ready"}
                if away or lost:
                    return f"{front.name} sees away: {away}, {lost}"
                # It picks pairs by what it knows, a heartbeat after the workers.
                if detail["links"] < links["prefill"] * links["decode"]:
                    return f"{front.name} knows {detail['links']} links"
            for node in self.workers():
                up = json.loads(node.get("/health")[1])["detail"]["links"]
                if up != links[node.role]:
                    return f"{node.name} has {up} links of {links[node.role]}"
        except OSError as error:
            return f"a probe has no answer: {error}"
        return ""

    def wait_whole_again(self, seconds):
        """After a silence: what was said before it may still look whole."""
        since = None
        end = time.monotonic() + seconds
        while since is None or time.monotonic() - since < 0.6:
            if why := self.why_not_whole():
                since = None
                assert time.monotonic() < end, f"the cluster is not whole after {seconds} s: {why}"
            elif since is None:
                since = time.monotonic()
            time.sleep(0.05)

    def wait_whole(self, seconds):
        end = time.monotonic() + seconds
        while why := self.why_not_whole():
            if time.monotonic() > end or "has ended" in why:
                self.show_logs()
                raise AssertionError(f"the cluster is not whole after {seconds} s: {why}")
            time.sleep(0.05)

    def busy_blocks(self, nodes, quarantined_allowed=()):
        """What the workers hold that belongs to a request or a peer: {} once all is given back."""
        busy = {}
        for node in nodes:
            blocks = node.blocks()
            held = blocks["used"] + blocks["reserved"]
            if node.name not in quarantined_allowed:
                held += blocks["quarantined"]
            if held:
                busy[node.name] = blocks
        return busy

    # ── moments ─────────────────────────────────────────────────────────────────────────────

    def arm(self, points):
        """points: [(node, failpoint, text that its `about` must contain)]."""
        for node, name, about in points:
            path = self.holds / f"{node.pid}.{name}"
            path.with_suffix(path.suffix + ".new").write_text(about)
            path.with_suffix(path.suffix + ".new").rename(path)

    def wait_held(self, seconds):
        """The first process held: (failpoint file, when it was held).  Others are disarmed."""
        end = time.monotonic() + seconds
        while not (held := sorted(self.holds.glob("*.held"))):
            if time.monotonic() > end:
                self.release()
                raise NotReached("no process came to the moment")
            time.sleep(0.0005)
        self.disarm()
        return held[0], held[0].stat().st_ctime

    def disarm(self):
        for path in self.holds.iterdir():
            if path.suffix != ".held":
                path.unlink(missing_ok=True)

    def release(self):
        for path in self.holds.iterdir():
            path.unlink(missing_ok=True)

    # ── the end ─────────────────────────────────────────────────────────────────────────────

    def show_logs(self, lines=30):
        for node in self.nodes.values():
            print(f"── {node.name} ({node.process.poll() if node.process else 'not started'})",
                  file=sys.stderr)
            print("\n".join(node.text().splitlines()[-lines:]), file=sys.stderr)

    def keep_logs(self, folder):
        folder.mkdir(parents=True, exist_ok=True)
        for node in self.nodes.values():
            shutil.copy(node.log_path, folder / f"{node.name}.log")

    def close(self):
        self.release()
        for role in ("frontend", "prefill", "decode"):
            for node in self.of(role):
                if node.alive():
                    node.send(signal.SIGCONT)
                    node.send(signal.SIGTERM)
        for node in self.nodes.values():
            if node.process is None:
                continue
            try:
                node.process.wait(10)
            except subprocess.TimeoutExpired:
                node.process.kill()
                node.process.wait()
        if self.small_disks:
            for node in self.nodes.values():
                node.disk.close()
        if self.hosts:
            self.hosts.close()
        shutil.rmtree(self.path, ignore_errors=True)

    def leftovers(self):
        """Shared memory that outlived every process of this rig (call after close)."""
        return [s for s in shared_memory() - self.segments_before
                if s[0] == "file" or s[2] in self.pids]

    def __exit__(self, *_):
        self.close()


def shared_memory():
    """{("sysv", id, creator's pid)} and {("file", name)} of this machine."""
    found = set()
    for line in pathlib.Path("/proc/sysvipc/shm").read_text().splitlines()[1:]:
        fields = line.split()
        found.add(("sysv", fields[1], int(fields[4])))
    for path in pathlib.Path("/dev/shm").iterdir():
        found.add(("file", path.name))
    return found
