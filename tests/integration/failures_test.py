# SPDX-FileCopyrightText: Baton developers
# SPDX-License-Identifier: Apache-2.0

"""kill -9 under 8 streams, at five moments of each worker role, with a test build that has
failpoints; the release build has none.  What survives is right, resumed or a typed error, and
owns nothing soon after."""

import concurrent.futures
import json
import pathlib
import signal
import subprocess
import time

from cluster import BATON, FAILPOINTS, Cluster, run, skip, words

PREFILL = ["prefill.accepted", "prefill.first_write", "prefill.half_written", "prefill.all_written",
           "prefill.committed"]
DECODE = ["decode.reserved", "decode.commit_arrived", "decode.first_token", "decode.fourth_token",
          "decode.finished"]
SETS = ["router.colocate_below_tokens=32", "kv_transfer.progress_timeout=5s"]
STREAMS = 8


def prompts():
    return [words(180 + 7 * i, seed=100 + i) for i in range(STREAMS)]


def ask_all(cluster, strict=True):
    """8 at once; each an answer, or (not strict) None for a typed error."""
    def one(prompt):
        done = cluster.generate_process(prompt, raw=True, max_tokens=12, temperature=0, timeout=120)
        if done.returncode == 0:
            return json.loads(done.stdout)
        assert not strict, done.stderr.decode()
        assert b"UNAVAILABLE" in done.stderr or b"unavailable" in done.stderr, done.stderr
        return None

    with concurrent.futures.ThreadPoolExecutor(STREAMS) as pool:
        return list(pool.map(one, prompts()))


_expected = []


def expected():
    if not _expected:
        with Cluster(sets=SETS) as cluster:
            _expected.extend(a["token_ids"] for a in ask_all(cluster))
    return _expected


def check(answers):
    for answer, ids in zip(answers, expected()):
        assert answer["token_ids"] == ids, (answer["token_ids"], ids, answer["path"])


def with_failpoint(name, count, prefill, decode, body):
    if not FAILPOINTS.exists():
        skip(f"{FAILPOINTS} is not built (tests/run.sh integration)")
    marker = pathlib.Path(f"/tmp/baton-failpoint-{time.monotonic_ns()}")
    try:
        with Cluster(prefill, decode, sets=SETS, binary=FAILPOINTS,
                     env={"BATON_FAILPOINT": f"{name}@{count}@{marker}"}) as cluster:
            body(cluster)
            assert marker.exists(), f"{name} was never passed"
    finally:
        marker.unlink(missing_ok=True)


def a_prefill_dies_and_the_other_takes_over():
    for name in PREFILL:
        def body(cluster):
            check(ask_all(cluster))
            cluster.wait_idle(2)
        with_failpoint(name, 3, 2, 2, body)
        print("  ", name, flush=True)


def a_decode_dies_and_its_streams_are_resumed():
    for name in DECODE:
        def body(cluster):
            check(ask_all(cluster))
            cluster.wait_idle(2)
        with_failpoint(name, 3, 2, 2, body)
        print("  ", name, flush=True)


def the_only_prefill_dies_and_decode_runs_the_prompts():
    for name in PREFILL:
        with_failpoint(name, 2, 1, 1, lambda cluster: check(ask_all(cluster)))
        print("  ", name, flush=True)


def the_only_decode_dies_and_is_right_again_when_it_is_back():
    for name in DECODE:
        def body(cluster):
            start = time.monotonic()
            first = ask_all(cluster, strict=False)
            assert time.monotonic() - start < 60
            for answer, ids in zip(first, expected()):
                assert answer is None or answer["token_ids"] == ids
            end = time.monotonic() + 30
            while True:
                again = ask_all(cluster, strict=False)
                if all(again):
                    break
                assert time.monotonic() < end, "no right answer in 30 s"
            check(again)
        with_failpoint(name, 3, 1, 1, body)
        print("  ", name, flush=True)


def survivors_own_nothing_a_second_after_a_kill():
    with Cluster(2, 2, sets=SETS) as cluster:
        for victim in ("prefill-0", "decode-0"):
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                running = pool.submit(ask_all, cluster)
                time.sleep(0.7)
                pids = {n: cluster.pid(n) for n in cluster.roles if n != victim}
                cluster.kill(victim)
                check(running.result())
            rest = [n for n in cluster.names("prefill") + cluster.names("decode") if n != victim]
            cluster.wait_idle(1, rest)
            for name in rest:
                blocks = cluster.kv_blocks(name)
                total = sum(blocks.values())
                assert blocks["free"] + blocks["cached"] == total, (name, blocks)
            assert pids == {n: cluster.pid(n) for n in pids}, "something else restarted"
            time.sleep(3)  # the victim comes back


def a_stopped_prefill_is_declared_dead_and_may_come_back():
    with Cluster(2, 1, sets=SETS) as cluster:
        check(ask_all(cluster))
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            running = pool.submit(ask_all, cluster)
            time.sleep(0.5)
            cluster.kill("prefill-0", signal.SIGSTOP)
            check(running.result())
        cluster.kill("prefill-0", signal.SIGCONT)
        cluster.wait_idle(5)
        check(ask_all(cluster))
        cluster.wait_idle(1)


def the_release_binary_has_no_failpoints():
    assert b"baton-failpoint:" not in BATON.read_bytes()
    if FAILPOINTS.exists():
        text = FAILPOINTS.read_bytes()
        for name in PREFILL + DECODE:
            assert b"baton-failpoint:" + name.encode() in text, name
    environment = {"BATON_FAILPOINT": "nothing@1@/nonexistent"}
    assert subprocess.run([BATON, "--version"], env=environment).returncode == 0


if __name__ == "__main__":
    run(the_release_binary_has_no_failpoints, a_prefill_dies_and_the_other_takes_over,
        a_decode_dies_and_its_streams_are_resumed,
        the_only_prefill_dies_and_decode_runs_the_prompts,
        the_only_decode_dies_and_is_right_again_when_it_is_back,
        survivors_own_nothing_a_second_after_a_kill,
        a_stopped_prefill_is_declared_dead_and_may_come_back)
