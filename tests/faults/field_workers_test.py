# SPDX-FileCopyrightText: Baton developers
# SPDX-License-Identifier: Apache-2.0

"""Field reports about workers that die, stall, drain or do not belong, on real processes.

Each function is named after its row in the list of field reports; docs/testing.md has the list
of rows and where each is tested."""

import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

from field import computed, front, idle, open_stream, post, requests, rig, run_rows
from rig import wait_for
from streams import Streams, ask

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
from cluster import BATON, FAILPOINTS, MODEL, words  # noqa: E402


# ── the end of workers ──────────────────────────────────────────────────────────────────────


def c56_a_prefill_that_dies_in_a_push_ends_the_landing():
    with rig() as made:
        prefill, decode = made.nodes["prefill-0"], made.nodes["decode-0"]
        made.arm([(prefill, "prefill.half_written", "")])
        streams = Streams([(front(made), words(100, 140), 8, 60)])
        made.wait_held(10)
        struck = time.time()
        prefill.send(signal.SIGKILL)
        wait_for(lambda: not decode.blocks()["reserved"] + decode.blocks()["quarantined"], 1,
                 "the landing ended and its blocks came back")
        out = streams.join(60)[0]
        assert out.kind == "answer" and out.tokens == 8, out
        assert out.first - struck < 3, "the fallback was slow"
        idle(made, 1, [decode])


def c57_a_dead_decode_is_an_error_or_a_seamless_continuation():
    prompt = words(100, 150)
    with rig(decode=2) as made:
        expected = ask(front(made), prompt, 50, 60)
    for resume in (True, False):
        with rig(decode=2, sets=[f"router.resume={str(resume).lower()}"]) as made:
            made.arm([(n, "decode.fourth_token", "") for n in made.of("decode")])
            streams = Streams([(front(made), prompt, 50, 60)])
            held, _ = made.wait_held(10)
            time.sleep(0.1)  # the tokens before it reach the client
            struck = time.time()
            victim = next(n for n in made.of("decode") if held.name.startswith(f"{n.pid}."))
            victim.send(signal.SIGKILL)
            made.release()
            out = streams.join(60)[0]
            if resume:
                assert (out.kind, out.text, out.finish, out.tokens) == \
                    ("answer", expected.text, expected.finish, expected.tokens), (out, expected)
            else:
                assert out.kind == "error" and out.ended - struck < 1, out
                assert expected.text.startswith(out.text), (out, expected)
            idle(made, 1, [n for n in made.workers() if n is not victim])


def c58_a_resumed_answer_with_a_seed_is_the_same():
    sampling = ("--temperature", "1", "--seed", "77")
    command = lambda made: subprocess.Popen(
        [str(FAILPOINTS), "generate", "--grpc", made.nodes["frontend-0"].address("grpc"), "--raw",
         "--json", *sampling, "--prompt", words(100, 160), "--max-tokens", "40"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with rig(decode=2) as made:
        expected = json.loads(command(made).communicate(timeout=60)[0])
        made.arm([(n, "decode.fourth_token", "") for n in made.of("decode")])
        call = command(made)
        held, _ = made.wait_held(10)
        next(n for n in made.of("decode") if held.name.startswith(f"{n.pid}.")).send(signal.SIGKILL)
        made.release()
        answer = json.loads(call.communicate(timeout=60)[0])
        assert answer["token_ids"] == expected["token_ids"], (answer, expected)
        assert answer["attempts"] == 2, answer


def c59_a_prefill_restarted_on_its_port_is_used_again_under_a_new_life():
    with rig() as made:
        prefill, decode = made.nodes["prefill-0"], made.nodes["decode-0"]
        old, pid = prefill.incarnation(), decode.pid
        prefill.send(signal.SIGKILL)
        prefill.process.wait()
        time.sleep(3)
        decode.mark_log()
        made.start(prefill)
        made.wait_whole(20)
        assert prefill.incarnation() != old
        _, headers, body = post(front(made), {"prompt": words(100, 170), "max_tokens": 4})
        assert headers["x-baton-path"] == "disaggregated", dict(headers)
        assert decode.alive() and decode.pid == pid
        assert len(decode.matching("link up")) == 1, decode.matching("link")
        idle(made, 1)


def c60_a_wedged_loop_is_seen_by_its_probe_and_by_the_front_end():
    with rig(decode=2) as made:
        for node in made.of("decode"):
            assert node.get("/live")[0] == 200
        made.arm([(n, "decode.first_token", "\n14000") for n in made.of("decode")])
        streams = Streams([(front(made), words(100, 180), 8, 60)])
        held, _ = made.wait_held(10)
        wedged = next(n for n in made.of("decode") if held.name.startswith(f"{n.pid}."))
        out = streams.join(10)[0]  # the front end gives it up after 2 s
        assert out.kind == "answer" and out.tokens == 8, out
        wait_for(lambda: wedged.get("/live")[0] == 503, 12, "/live of the wedged one is 503", 0.2)
        made.release()
        wait_for(lambda: wedged.get("/live")[0] == 200, 3, "/live is 200 again")
        made.wait_whole(10)
        idle(made, 2)


def c61_a_push_that_fails_is_computed_again_where_decode_is():
    prompt = words(100, 190)
    with rig() as made:
        expected = ask(front(made), prompt, 12, 60)
        prefill = made.nodes["prefill-0"]
        text = words(110, 191)
        made.arm([(prefill, "prefill.half_written", "")])
        streams = Streams([(front(made), text, 12, 60)])
        made.wait_held(10)
        prefill.send(signal.SIGKILL)
        out = streams.join(60)[0]
        wait_for(lambda: requests(made, path="fallback", outcome=out.finish) == 1, 1,
                 "counted as a fallback")
        prefill.process.wait()
        made.start(prefill)
        made.wait_whole(20)
        again = ask(front(made), prompt, 12, 60)
        assert (again.text, again.tokens) == (expected.text, expected.tokens)
    with rig(sets=["router.colocate_below_tokens=100000"]) as made:
        colocated = ask(front(made), text, 12, 60)
        assert (out.text, out.tokens) == (colocated.text, colocated.tokens), (out, colocated)


def c76_a_stranger_on_a_dead_workers_port_gets_nothing():
    with rig(prefill=2) as made:
        victim = made.nodes["prefill-1"]
        victim.send(signal.SIGKILL)
        victim.process.wait()
        # Another worker on its port: the first prefill's name, from another process.
        impostor = [w.replace("prefill-1", "prefill-0") if w == "prefill-1" else w
                    for w in victim.command()]
        for port in victim.ports:
            impostor += ["--set", f"workers.prefill.0.{port}={victim.address(port)}"]
        with open(made.path / "impostor.log", "wb") as log:
            process = subprocess.Popen(impostor, stdout=log, stderr=log)
        try:
            time.sleep(4)
            for i in range(6):
                out = ask(front(made), words(100, 200 + i), 4, 60)
                assert out.kind == "answer" and out.tokens == 4, out
            text = (made.path / "impostor.log").read_text()
            assert "link up" not in text, text
        finally:
            process.terminate()
            process.wait()
        idle(made, 1, [n for n in made.workers() if n is not victim])


def c77_without_prefill_decode_does_it_and_without_decode_it_is_503():
    with rig(prefill=2) as made:
        for node in made.of("prefill"):
            node.send(signal.SIGKILL)
        out = ask(front(made), words(100, 210), 4, 60)
        assert out.kind == "answer" and out.tokens == 4, out
        decode = made.nodes["decode-0"]
        decode.send(signal.SIGKILL)
        decode.process.wait()
        wait_for(lambda: made.nodes["frontend-0"].get("/ready")[0] == 503, 3, "not ready")
        start = time.monotonic()
        status, headers, body = post(front(made), {"prompt": words(30, 211), "max_tokens": 2})
        assert status == 503 and "Retry-After" in headers, (status, body)
        assert time.monotonic() - start < 1
        made.start(decode)
        wait_for(lambda: post(front(made), {"prompt": words(30, 212), "max_tokens": 2})[0] == 200,
                 20, "it serves again without a restart of the front end", 0.1)


def c117_a_stalled_prefill_stalls_nobody_else():
    with rig(prefill=2, sets=["limits.queue_requests=512"]) as made:
        alone = [o.ended - o.first for o in [ask(front(made), words(20, 220), 40, 60)]][0]
        stalled = made.nodes["prefill-0"]
        stalled.send(signal.SIGSTOP)
        struck = time.time()
        long = Streams([(front(made), words(60, 1000 + i), 2, 120) for i in range(200)])
        wait_for(lambda: made.nodes["frontend-0"].events("worker=prefill-0 state=dead", struck),
                 4, "the stalled one is marked dead")
        short = ask(front(made), words(20, 221), 40, 60)
        assert short.kind == "answer", short
        for out in long.join(130):
            assert out.kind == "answer", out
        stalled.send(signal.SIGCONT)
        made.wait_whole(15)
        idle(made, 2)
        print(f"    40 tokens: alone {alone:.2f} s, beside 200 long prompts "
              f"{short.ended - short.first:.2f} s")
        before = computed(made)
        for i in range(4):
            assert ask(front(made), words(100, 230 + i), 2, 60).kind == "answer"
        assert computed(made) > before, "the one that came back is not used"


# ── identity, gauges, drain ─────────────────────────────────────────────────────────────────


def c66_a_peer_with_another_kv_type_is_refused_by_name_and_the_rest_serves():
    with rig(prefill=2, whole=False, sets_of={"prefill-1": ["engine.kv_type=f32"]}) as made:
        odd, decode = made.nodes["prefill-1"], made.nodes["decode-0"]
        refused = wait_for(lambda: decode.matching(r"link refused.*peer=prefill-1"), 20,
                           "the pair is refused")
        assert "layout.element_type" in refused[0] or "numeric class" in refused[0], refused
        wait_for(lambda: decode.matching(r"link up.*peer=prefill-0"), 10, "the other pair is up")
        for name in ("decode-0", "prefill-0"):
            wait_for(lambda: made.nodes["frontend-0"].matching(rf"worker={name} state=ready"), 10,
                     f"the front end sees {name} ready")
        time.sleep(1)  # it hears of the link with a status
        for i in range(6):
            out = ask(front(made), words(100, 240 + i), 4, 60)
            assert out.kind == "answer" and out.tokens == 4, out
        assert computed(made, "prefill-1") == 0
        assert computed(made, "prefill-0") > 0
        assert odd.alive() and not odd.matching("link up")
        idle(made, 1)


def c67_a_new_peer_joins_without_a_pause_of_running_streams():
    with rig(prefill=2) as made:
        late = made.nodes["prefill-1"]
        late.send(signal.SIGKILL)
        late.process.wait()
        time.sleep(0.5)
        s = open_stream(front(made), words(20, 250), 400)
        s.settimeout(10)
        s.recv(65536)
        made.start(late)
        gaps, last, data = [], time.monotonic(), b""
        while b"[DONE]" not in data:
            data = data[-16:] + s.recv(65536)
            now = time.monotonic()
            gaps.append(now - last)
            last = now
        s.close()
        print(f"    longest gap between tokens while a peer joins: {max(gaps) * 1e3:.0f} ms")
        assert max(gaps) < 1.0, max(gaps)
        made.wait_whole(20)


def c68_tcp_is_said_not_hidden():
    with rig(transport="tcp") as made:
        assert ask(front(made), words(100, 260), 2, 60).kind == "answer"
        for node in made.workers():
            info = node.metrics().find("baton_transport_info")
            assert info and all(l["transport"] == "tcp" and l["data_path"] == "B"
                                for l, _ in info), info


def c69_memlock_is_named_at_start():
    text = ("version: 1\nmodel: {path: %s}\nkv_transfer: {require_rdma: true}\n"
            "workers:\n  decode: [{name: decode-0}]\n  prefill: [{name: prefill-0}]\n")
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder) / "cluster.yaml"
        config.write_text(text % MODEL)
        done = subprocess.run(["bash", "-c", 'ulimit -l 64; exec "$@"', "-", BATON, "serve", "--role",
                               "decode", "--name", "decode-0", "--config", str(config)],
                              capture_output=True, text=True, timeout=60)
    assert done.returncode == 69, (done.returncode, done.stderr)
    assert "memlock" in done.stderr and "IPC_LOCK" in done.stderr, done.stderr


def c71_loopback_is_not_advertised_to_others():
    text = ("version: 1\nworkers:\n  decode: [{name: decode-0, transfer: 127.0.0.1:9203}]\n"
            "  prefill: [{name: prefill-0, listen: 10.1.2.3:9101, transfer: 10.1.2.3:9103}]\n")
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder) / "cluster.yaml"
        config.write_text(text)
        done = subprocess.run([BATON, "check-config", "--config", str(config)],
                              capture_output=True, text=True, timeout=20)
    assert done.returncode == 78, (done.returncode, done.stderr)
    assert "advertise_" in done.stderr and "127.0.0.1" in done.stderr, done.stderr


def c97_sigterm_lets_streams_end_refuses_new_ones_and_exits_0():
    for role in ("frontend", "prefill", "decode"):
        with rig(prefill=2, decode=2) as made:
            node = made.nodes[f"{role}-0"]
            streams = Streams([(front(made), words(60, 400 + i), 60, 60) for i in range(10)])
            time.sleep(1)
            node.send(signal.SIGTERM)
            time.sleep(0.2)
            if role == "frontend" and node.alive():
                try:
                    assert post(front(made), {"prompt": "x", "max_tokens": 1})[0] == 503
                except OSError:
                    pass  # nothing was left to do: it is gone
            for out in streams.join(70):
                assert out.kind == "answer" and out.tokens > 0, (role, out)
            assert node.process.wait(20) == 0, (role, node.process.returncode)
            idle(made, 1, [n for n in made.workers() if n is not node]) if role != "frontend" \
                else wait_for(lambda: not made.busy_blocks(made.workers()), 1, "nothing is left")
    # A drain too short: what is left ends with a typed error, the exit is still 0.
    with rig(sets=["limits.drain=1s"]) as made:
        node = made.nodes["frontend-0"]
        made.arm([(made.nodes["decode-0"], "decode.fourth_token", "")])  # no stream ends by itself
        streams = Streams([(front(made), words(60, 420 + i), 2000, 60) for i in range(4)])
        made.wait_held(10)
        node.send(signal.SIGTERM)
        for out in streams.join(20):
            assert out.kind == "error" and "unavailable" in out.why.lower() + "unavailable", out
        assert node.process.wait(10) == 0, node.process.returncode
    # A second SIGTERM ends it at once.
    with rig() as made:
        node = made.nodes["decode-0"]
        made.arm([(node, "decode.fourth_token", "")])  # there is something to wait for
        streams = Streams([(front(made), words(60, 430), 2000, 60)])
        made.wait_held(10)
        node.send(signal.SIGTERM)
        time.sleep(0.3)
        node.send(signal.SIGTERM)
        start = time.monotonic()
        assert node.process.wait(5) == 128 + signal.SIGTERM
        assert time.monotonic() - start < 1
        streams.join(60)


def c98_a_prefill_that_drains_finishes_its_push_first():
    with rig() as made:
        prefill, decode = made.nodes["prefill-0"], made.nodes["decode-0"]
        made.arm([(prefill, "prefill.half_written", "")])
        streams = Streams([(front(made), words(100, 440), 8, 60)])
        made.wait_held(10)
        decode.send(signal.SIGSTOP)
        prefill.send(signal.SIGTERM)
        made.release()
        time.sleep(1.2)
        assert prefill.alive() or made.transport == "shm"  # shared memory needs no decode
        decode.send(signal.SIGCONT)
        out = streams.join(30)[0]
        assert out.kind == "answer" and out.tokens == 8, out
        assert prefill.process.wait(10) == 0
        wait_for(lambda: requests(made, path="disaggregated") == 1, 1, "nothing was done twice")


def c108_a_reload_is_checked_first_and_names_what_needs_a_restart():
    with rig() as made:
        config = made.path / "cluster.yaml"
        text = config.read_text()
        gauge = lambda n: n.metrics().sum("baton_config_last_reload_successful")
        for node in made.nodes.values():
            assert gauge(node) == 1
            node.mark_log()
        config.write_text(text + "limits: {drian: 3s}\n")
        for node in made.nodes.values():
            node.send(signal.SIGHUP)
            wait_for(lambda: gauge(node) == 0, 2, "the reload failed")
            assert "drian" in node.matching("not reloaded")[0], node.lines()
        assert ask(front(made), words(100, 450), 2, 60).kind == "answer"
        config.write_text(text + "limits: {queue_requests: 77}\n")
        for node in made.nodes.values():
            node.send(signal.SIGHUP)
            wait_for(lambda: gauge(node) == 1, 2, "the reload is good again")
            assert "keys=limits.queue_requests" in node.matching("need a restart")[0], node.lines()
        config.write_text(text)
        for node in made.nodes.values():
            node.send(signal.SIGHUP)
            wait_for(lambda: node.matching("nothing changed"), 2, "nothing changed")
        assert ask(front(made), words(100, 451), 2, 60).kind == "answer"


if __name__ == "__main__":
    run_rows(globals())
