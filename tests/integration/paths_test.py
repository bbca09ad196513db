# SPDX-FileCopyrightText: Baton developers
# SPDX-License-Identifier: Apache-2.0

"""K8 from outside: the answer does not depend on the path.

Same tokens and bit-equal logprobs for colocated, disaggregated over shared memory and over TCP,
cold and warm prefix, alone and 8 at a time, greedy and temperature 1 with a seed; with int8 KV
too.  The path is proven by the counters of both roles.  --count N runs N prompts of random
lengths instead.
"""

import concurrent.futures
import sys

from cluster import BLOCK_BYTES, LAYERS, Cluster, run, words

LENGTHS = [1, 15, 16, 17, 511, 512, 513, 2000]
COUNT = 0
if "--count" in sys.argv:
    at = sys.argv.index("--count")
    COUNT = int(sys.argv[at + 1])
    del sys.argv[at:at + 2]
    state = 7
    LENGTHS = []
    for _ in range(COUNT):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        LENGTHS.append(int(4000 ** ((state >> 33) / 2**31)))  # as many of 4 to 40 as of 400 to 4000

SAMPLING = {"greedy": {"temperature": 0}, "seeded": {"temperature": 1, "seed": 1234}}


def ask(cluster, length, sampling):
    answer = cluster.generate(words(length, seed=length), raw=True, max_tokens=12, logprobs=2,
                              **SAMPLING[sampling])
    assert answer["prompt_tokens"] == length, (answer["prompt_tokens"], length)
    return answer


def bits(answer):
    return (answer["token_ids"], answer["logprob_bits"], answer["text"], answer["finish_reason"])


def blocks_of(tokens):
    return (tokens + 15) // 16


def prompt_tokens_computed(cluster):
    return sum(cluster.metrics(n).sum("baton_prompt_tokens_total", source="computed")
               for n in cluster.names("prefill"))


def transfer_bytes(cluster, role):
    return sum(int(cluster.metrics(n).sum("baton_kv_transfer_bytes_total"))
               for n in cluster.names(role))


def ask_cold_then_warm(cluster, length, path, transports, block_bytes):
    """Greedy in a cold cache, then seeded in a warm one; {(length, sampling): bits}."""
    answers = {}
    for sampling in SAMPLING:
        cold = sampling == "greedy"
        before = transfer_bytes(cluster, "prefill")
        computed = prompt_tokens_computed(cluster)
        answer = ask(cluster, length, sampling)
        assert answer["path"] == path, (length, answer["path"])
        answers[length, sampling] = bits(answer)
        if path == "disaggregated":
            kv = answer["kv"]
            assert kv["transport"] in transports, kv
            assert kv["bytes"] == kv["blocks"] * block_bytes * LAYERS, kv
            after = transfer_bytes(cluster, "prefill")
            assert after - before == kv["bytes"], (before, after, kv)
            assert transfer_bytes(cluster, "decode") == after
            if cold:
                cached = answer["cached_tokens"]
                assert cached == 0 or COUNT, (length, cached)  # a length may come twice
                assert kv["blocks"] >= blocks_of(length) - cached // 16, (length, kv)
                now = prompt_tokens_computed(cluster)
                assert now - computed >= length - cached, (now, computed, length, cached)
        if not cold and length > 16:
            assert answer["cached_tokens"] > 0, (length, answer)
    return answers


def collect(sets, path, transports, kv_type, lengths):
    """All answers of one cluster: {(length, sampling): bits}; cold, warm and 8 at a time."""
    answers = {}
    with Cluster(sets=[*sets, f"engine.kv_type={kv_type}"], kv_memory="512MiB") as cluster:
        for name in cluster.names("prefill") + cluster.names("decode"):
            assert cluster.metrics(name).sum("baton_kv_config_info", dtype=kv_type) == 1, name
        # A few lengths at a time: what is asked again is still in the caches.
        for first in range(0, len(lengths), 4):
            some = lengths[first:first + 4]
            for length in some:
                answers.update(ask_cold_then_warm(cluster, length, path, transports,
                                                  BLOCK_BYTES[kv_type]))
            jobs = [(length, sampling) for length in some for sampling in SAMPLING]
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                for job, answer in zip(jobs, pool.map(lambda j: ask(cluster, *j), jobs)):
                    assert bits(answer) == answers[job], (path, job, bits(answer), answers[job])
        cluster.wait_idle(1)
        pieces = transfer_bytes(cluster, "decode") // BLOCK_BYTES[kv_type]
        for result, count in (("right", pieces), ("wrong", 0)):
            found = sum(int(cluster.metrics(n).sum("baton_kv_blocks_compared_total", result=result))
                        for n in cluster.names("decode"))
            assert found == count, (path, result, found, count)
    return answers


def same_bits_on_every_path(kv_type, lengths):
    base = ["engine.batch_tokens=256", "engine.chunk_tokens=512"]
    colocated = collect(base + ["router.colocate_below_tokens=1000000"], "colocated", (), kv_type,
                        lengths)
    shm = collect(base + ["router.colocate_below_tokens=0", "kv_transfer.transport=shm"],
                  "disaggregated", ("posix", "sysv"), kv_type, lengths)
    tcp = collect(["engine.chunk_tokens=208", "router.colocate_below_tokens=0",
                   "kv_transfer.transport=tcp"], "disaggregated", ("tcp",), kv_type, lengths)
    for job, expected in colocated.items():
        assert shm[job] == expected, ("shm", job, shm[job], expected)
        assert tcp[job] == expected, ("tcp", job, tcp[job], expected)


def every_path_gives_the_same_bits():
    same_bits_on_every_path("bf16", LENGTHS)
    same_bits_on_every_path("int8", LENGTHS[:40] if COUNT else [17, 700])


if __name__ == "__main__":
    run(every_path_gives_the_same_bits)
