# SPDX-FileCopyrightText: Baton developers
# SPDX-License-Identifier: Apache-2.0

"""Field reports about scheduling, cancellation and gauges that only real processes can show.

Each function is named after its row in the list of field reports; docs/testing.md has the list
of rows and where each is tested."""

import pathlib
import signal
import socket
import sys
import threading
import time

from field import (computed, fin, front, grpc_call, hash_of, idle, open_stream, outcomes, post,
                   rig, rst, run_rows)
from rig import wait_for
from streams import Streams, ask

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
from cluster import words  # noqa: E402


# ── scheduling ──────────────────────────────────────────────────────────────────────────────


def c40_a_full_queue_answers_429_at_once():
    with rig(sets=["limits.queue_requests=4", "engine.sequences_max=1"]) as made:
        running = Streams([(front(made), words(60, 900 + i), 40, 60) for i in range(3)])
        wait_for(lambda: made.nodes["frontend-0"].metrics().sum("baton_requests_running"), 10,
                 "one runs")
        burst = Streams([(front(made), words(400, 950 + i), 4, 60) for i in range(10)])
        refused = [o for o in burst.join(60) if o.kind == "error"]
        assert len(refused) >= 6, [o.kind for o in burst.outcomes]
        for out in refused:
            assert out.why.startswith("429"), out.why
            assert out.ended - out.started < 0.5, out
        running.join(60)
        status, headers, _ = post(front(made), {"prompt": words(30, 5), "max_tokens": 2})
        assert status == 200, status
        idle(made, 1)
        made.arm([(made.nodes["decode-0"], "decode.fourth_token", "")])  # the queue stays full
        hold = Streams([(front(made), words(60, 970 + i), 60, 60) for i in range(8)])
        made.wait_held(10)
        codes = set()
        for i in range(10):
            status, headers, _ = post(front(made), {"prompt": words(300, 990 + i),
                                                    "max_tokens": 1})
            codes.add(status)
            if status == 429:
                assert int(headers["Retry-After"]) >= 1, headers
                break
        made.release()
        hold.join(60)
        assert 429 in codes, codes


def c41_a_prompt_that_no_pool_can_hold_is_refused_and_stops_nobody():
    # 12 blocks of 16 tokens; a block has 360 KiB.
    with rig(kv_memory="4320KiB") as made:
        start = time.monotonic()
        status, _, body = post(front(made), {"prompt": words(200, 1), "max_tokens": 8})
        assert status == 400 and "must fit" in body["error"]["message"], (status, body)
        assert time.monotonic() - start < 0.5
        assert post(front(made), {"prompt": words(20, 2), "max_tokens": 4})[0] == 200
        # Prompt and answer together beyond the pool: a shorter answer, never a livelock.
        status, _, body = post(front(made), {"prompt": words(150, 3), "max_tokens": 500})
        assert status == 200, (status, body)
        assert body["choices"][0]["finish_reason"] == "length", body
        idle(made, 1)


def c42_preempted_answers_are_the_unloaded_ones():
    asked = [(words(100, 20 + i), 100) for i in range(4)]
    with rig() as made:
        expected = [ask(front(made), *one, 120) for one in asked]
        assert all(o.kind == "answer" for o in expected), expected
    with rig(kv_memory="8640KiB") as made:  # 24 blocks; the four need 52
        got = Streams([(front(made), *one, 180) for one in asked]).join(200)
        for out, right in zip(got, expected):
            assert (out.kind, out.text, out.finish, out.tokens) == \
                (right.kind, right.text, right.finish, right.tokens), (out, right)
        m = made.nodes["decode-0"].metrics()
        front_metrics = made.nodes["frontend-0"].metrics()
        assert m.sum("baton_preemptions_total") + \
            front_metrics.sum("baton_attempts_total", result="refused") > 0, "there was no pressure"
        idle(made, 1)


def c43_a_paused_decode_holds_prefill_back_and_nothing_hangs():
    with rig() as made:
        decode = made.nodes["decode-0"]
        decode.send(signal.SIGSTOP)
        streams = Streams([(front(made), words(120, 40 + i), 4, 60) for i in range(20)])
        time.sleep(1.2)  # below the time after which it counts as dead
        decode.send(signal.SIGCONT)
        for out in streams.join(70):
            assert out.kind == "answer" and out.tokens == 4, out
        idle(made, 1)


def c44_the_threshold_counts_uncached_tokens():
    with rig(sets=["router.colocate_below_tokens=64"]) as made:
        paths = []
        for tokens in (63, 64):
            _, headers, body = post(front(made), {"prompt": words(tokens, tokens),
                                                  "max_tokens": 2})
            assert body["usage"]["prompt_tokens"] == tokens, body
            paths.append(headers["x-baton-path"])
        assert paths == ["colocated", "disaggregated"], paths
        # 200 tokens of which decode has 176 or more: colocated.
        assert post(front(made), {"prompt": words(190, 3), "max_tokens": 2})[0] == 200
        _, headers, body = post(front(made), {"prompt": words(190, 3) + words(10, 4),
                                              "max_tokens": 2})
        assert headers["x-baton-path"] == "colocated", (dict(headers), body["usage"])
        assert body["usage"]["prompt_tokens_details"]["cached_tokens"] >= 176, body["usage"]
        # The shortest prompt does not wedge anything.
        assert post(front(made), {"prompt": words(1, 3), "max_tokens": 1})[0] == 200
        _, headers, _ = post(front(made), {"prompt": words(150, 8), "max_tokens": 2})
        assert headers["x-baton-path"] == "disaggregated"
        idle(made, 1)


# ── cancellation ────────────────────────────────────────────────────────────────────────────


def c47_a_client_that_leaves_before_its_first_token_stops_the_prefill():
    with rig(sets=["engine.chunk_tokens=64"]) as made:
        cancelled = 0
        for how, close in (("FIN", fin), ("RST", rst), ("not streamed, FIN", fin)):
            before = computed(made)
            s = open_stream(front(made), words(1000, 60 + cancelled), 4,
                            stream=not how.startswith("not"))
            wait_for(lambda: computed(made) > before, 10, "the prefill computes", 0.01)
            close(s)
            at = computed(made)
            idle(made, 1)
            assert computed(made) - at <= 2 * 64, (how, at, computed(made))
            assert computed(made) < before + 600, how
            cancelled += 1
            assert outcomes(made)["cancelled"] == cancelled, (how, outcomes(made))
        before = computed(made)
        call = grpc_call(made, words(1000, 70), 4)
        wait_for(lambda: computed(made) > before, 10, "the prefill computes", 0.01)
        call.kill()
        call.wait()
        idle(made, 1)
        assert computed(made) < before + 600
        assert outcomes(made)["cancelled"] == cancelled + 1, outcomes(made)


def c48_cancelled_between_prefill_and_decode_frees_both():
    with rig() as made:
        decode = made.nodes["decode-0"]
        made.arm([(decode, "decode.commit_arrived", "")])
        s = open_stream(front(made), words(100, 80), 4)
        made.wait_held(10)
        rst(s)
        time.sleep(0.2)
        made.release()
        idle(made, 1)
        # The front end dies in that window instead: the lease is the back-stop.
        made.arm([(decode, "decode.commit_arrived", "")])
        s = open_stream(front(made), words(100, 81), 40)
        made.wait_held(10)
        made.nodes["frontend-0"].send(signal.SIGKILL)
        made.release()
        wait_for(lambda: not made.busy_blocks(made.workers()), 3, "freed with the front end")
        s.close()


def c50_cancels_of_every_kind_leave_no_gauge_up():
    with rig() as made:
        for tokens in (20, 100):
            for when in ("decode.reserved", "prefill.half_computed", "decode.first_token",
                         "decode.fourth_token"):
                if tokens == 20 and when in ("decode.reserved", "prefill.half_computed"):
                    continue  # decode runs a short one itself
                for kind in ("http", "grpc", "unary"):
                    node = made.nodes[when.split(".")[0] + "-0"]
                    made.arm([(node, when, "")])
                    prompt = words(tokens, hash_of(tokens, when, kind))
                    if kind == "grpc":
                        call = grpc_call(made, prompt, 60)
                        made.wait_held(10)
                        call.terminate()
                        call.wait()
                    else:
                        s = open_stream(front(made), prompt, 60, stream=kind == "http")
                        made.wait_held(10)
                        rst(s)
                    made.release()
                    idle(made, 1)
        assert outcomes(made)["cancelled"] == 18, outcomes(made)
        # After the end: nothing to cancel, nothing goes below 0.
        s = open_stream(front(made), words(30, 3), 2)
        data = b""
        while b"[DONE]" not in data:
            data += s.recv(65536)
        rst(s)
        idle(made, 1)
        assert outcomes(made)["cancelled"] == 18, outcomes(made)


def c53_a_decode_without_room_leaves_nothing_on_prefill():
    with rig(kv_memory="5760KiB") as made:  # 16 blocks: half of them for tickets, a quarter each
        got = Streams([(front(made), words(60, 100 + i), 30, 60) for i in range(10)]).join(70)
        for out in got:
            assert out.kind == "answer" or out.why[:3] in ("429", "503"), out
        assert any(o.kind == "answer" for o in got)
        idle(made, 1)


def c55_a_deadline_that_passes_during_a_push_poisons_nobody():
    with rig() as made:
        right = ask(front(made), words(100, 120), 8, 60)
        others = [(words(100, 121 + i), 8) for i in range(8)]
        expected = [ask(front(made), *one, 60) for one in others]
    with rig() as made:
        prefill = made.nodes["prefill-0"]
        made.arm([(prefill, "prefill.half_written", "")])
        s = open_stream(front(made), words(100, 120), 8)
        made.wait_held(10)
        rst(s)  # decode revokes while the writer is in the middle
        streams = Streams([(front(made), *one, 60) for one in others])
        time.sleep(0.5)
        made.release()
        for out, want in zip(streams.join(70), expected):
            assert (out.kind, out.text, out.tokens) == (want.kind, want.text, want.tokens), out
        again = ask(front(made), words(100, 120), 8, 60)
        assert (again.text, again.tokens) == (right.text, right.tokens), (again, right)
        idle(made, 1)


# ── names and gauges ────────────────────────────────────────────────────────────────────────────


def c75_two_live_requests_with_one_id_are_two_requests():
    with rig() as made:
        asked = [words(100, 270), words(100, 271)]
        expected = [ask(front(made), text, 16, 60).text for text in asked]
        made.arm([(made.nodes["decode-0"], "decode.first_token", "")])
        results = [None, None]

        def one(i):
            results[i] = post(front(made), {"prompt": asked[i], "max_tokens": 16},
                              headers={"X-Request-Id": "the-same"}.items())
        threads = [threading.Thread(target=one, args=(i,)) for i in range(2)]
        for thread in threads:
            thread.start()
        made.wait_held(10)
        made.release()
        for thread in threads:
            thread.join(60)
        for (status, headers, body), text in zip(results, expected):
            assert status == 200 and body["choices"][0]["text"] == text, (body, text)
        # Cancelling one leaves the other.
        s = open_stream(front(made), words(100, 272), 60)
        other = Streams([(front(made), asked[0], 16, 60)])
        time.sleep(0.1)
        rst(s)
        assert other.join(60)[0].text == expected[0]
        idle(made, 1)


def c86_two_hundred_streams_cut_at_once_leave_every_gauge_at_0():
    with rig() as made:
        sockets = [open_stream(front(made), words(20 + i % 40, 300 + i), 200) for i in range(200)]
        wait_for(lambda: made.nodes["frontend-0"].metrics().sum("baton_requests_running") > 20, 30,
                 "many run", 0.05)
        for s in sockets:
            rst(s)
        time.sleep(1)
        for node in made.nodes.values():
            m = node.metrics()
            for gauge in ("baton_requests_running", "baton_requests_waiting"):
                assert m.sum(gauge) == 0, (node.name, m.find(gauge))
        assert not made.busy_blocks(made.workers()), made.busy_blocks(made.workers())
        assert sum(outcomes(made).values()) == 200, outcomes(made)


if __name__ == "__main__":
    run_rows(globals())
