# SPDX-FileCopyrightText: Baton developers
# SPDX-License-Identifier: Apache-2.0

"""What only whole processes show: shared memory after kill -9, `up` that restarts the dead, and
logs that cannot be written."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

from field import front, idle, rig
from rig import shared_memory, wait_for
from streams import Streams, ask, prompts

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
from cluster import FAILPOINTS, Cluster, config_text, http_get, run, words  # noqa: E402

SETS = ["router.colocate_below_tokens=32"]


def segments_of(pid):
    return {s for s in shared_memory() if s[0] == "sysv" and s[2] == pid}


def kill_under_load(made, victim, number):
    """Its segments are gone within a second, and every stream ends with an answer."""
    streams = Streams([(front(made), *p, 60) for p in prompts(number)[:16]])
    time.sleep(0.5)
    victim.send(signal.SIGKILL)
    victim.process.wait()
    wait_for(lambda: not segments_of(victim.pid), 1, "a dead process's memory is gone")
    for out in streams.join(70):
        assert out.kind == "answer", out


def a_dead_owners_memory_is_gone_within_a_second():
    with rig(decode=2) as made:
        victim = made.nodes["decode-0"]
        assert segments_of(victim.pid), "the pool is in no shared memory: this test sees nothing"
        kill_under_load(made, victim, 0)


def a_dead_writer_leaves_no_memory_behind():
    with rig(prefill=2) as made:
        victim = made.nodes["prefill-0"]
        kill_under_load(made, victim, 1)
        idle(made, 1, [n for n in made.workers() if n is not victim])


def nothing_is_left_when_all_are_killed_at_once():
    with rig(prefill=2, decode=2) as made:
        Streams([(front(made), *p, 60) for p in prompts(2)[:16]])
        time.sleep(0.7)
        for node in made.nodes.values():
            node.send(signal.SIGKILL)
        for node in made.nodes.values():
            node.process.wait()
        wait_for(lambda: not made.leftovers(), 1, f"no segment is left: {made.leftovers()}")


def up_restarts_each_role_and_answers_stay_right():
    with Cluster(2, 2, sets=SETS, binary=FAILPOINTS) as cluster:
        asked = [(cluster.http, *p, 90) for p in prompts(3)[:16]]
        expected = Streams(asked).join(100)
        assert all(o.kind == "answer" for o in expected), expected
        for victim in ("decode-1", "prefill-1", "frontend"):
            pids = {n: cluster.pid(n) for n in cluster.roles}
            streams = Streams(asked)
            time.sleep(0.4)
            cluster.kill(victim)
            for out, right in zip(streams.join(100), expected):
                if victim == "frontend" and out.kind == "broken":
                    continue
                assert (out.kind, out.text, out.logprobs) == ("answer", right.text,
                                                              right.logprobs), (victim, out)
            wait_for(lambda: cluster.pid(victim) != pids[victim], 10, f"{victim} is restarted")
            wait_for(lambda: _serves(cluster), 20, "the cluster serves again", 0.1)
            for name, pid in pids.items():
                assert name == victim or cluster.pid(name) == pid, f"{name} was restarted too"
            cluster.wait_idle(3)


def _serves(cluster):
    try:
        return ask(cluster.http, words(20, 5), 2, 10).kind == "answer" and all(
            http_get(cluster.admin(n), "/ready")[0] == 200 for n in cluster.roles)
    except OSError:
        return False


def a_full_disk_under_ups_log_stops_nobody():
    with Cluster(1, 1, sets=SETS, binary=FAILPOINTS) as cluster:
        right = ask(cluster.http, words(100, 7), 8, 60)
        # The log's descriptor of `up` itself cannot be changed from here; a second cluster has it
        # on /dev/full from the start.
    config = pathlib.Path(os.environ.get("TMPDIR", "/tmp")) / f"baton-full-{os.getpid()}.yaml"
    ready = config.with_suffix(".ready")
    config.write_text(config_text(1, 1))
    with open("/dev/full", "wb") as full:
        process = subprocess.Popen([str(FAILPOINTS), "up", "--config", str(config), "--ready-file",
                                    str(ready), "--set", SETS[0], "--log-level", "debug"],
                                   stdout=full, stderr=full)
    try:
        wait_for(lambda: ready.exists() and ready.stat().st_size, 60, "ready")
        http = json.loads(ready.read_text())["http"].removeprefix("http://").rstrip("/")
        out = ask(http, words(100, 7), 8, 60)
        assert (out.kind, out.text, out.logprobs) == ("answer", right.text, right.logprobs), out
        process.send_signal(signal.SIGTERM)
        assert process.wait(40) == 0, process.returncode
    finally:
        process.kill()
        process.wait()
        config.unlink()
        ready.unlink(missing_ok=True)


if __name__ == "__main__":
    run(a_dead_owners_memory_is_gone_within_a_second, a_dead_writer_leaves_no_memory_behind,
        nothing_is_left_when_all_are_killed_at_once, up_restarts_each_role_and_answers_stay_right,
        a_full_disk_under_ups_log_stops_nobody)
