# SPDX-FileCopyrightText: Baton developers
# SPDX-License-Identifier: Apache-2.0

"""Pools of different element types: what is pushed is converted, if the operator allows it.

Prefill keeps bf16, decode another type.  The answer is compared with the one that a cluster gives
whose decode computes the same prompt itself, in its own type: the first tokens are the same, and
each of their log probabilities is within TOLERANCE of its.  Without the key the pair is refused by
the field's name, and decode answers alone.
"""

import struct
import subprocess
import time

from cluster import BLOCK_BYTES, LAYERS, Cluster, run

TOKENS = 12
# Greedy first tokens that must agree, and the distance of their log probabilities.  bf16 keeps 8
# bits, f16 11; int8 has about 7 of a row's largest.
FIRST = {"f16": 6, "f32": 6, "int8": 2}
TOLERANCE = {"f16": 0.15, "f32": 0.15, "int8": 0.5}

PROMPTS = [
    "The capital of France is Paris. The capital of Italy is Rome. The capital of Spain is Madrid. "
    "The capital of Germany is Berlin. The capital of France is",
    "One, two, three, four, five, six, seven, eight, nine, ten. " * 12 + "One, two, three,",
    "Water is wet. Fire is hot. Ice is cold. Snow is white. The sky is blue. " * 20
    + "Water is wet. Fire is hot. Ice is",
]


def logprobs(answer):
    return [struct.unpack(">f", bytes.fromhex(bits))[0] for bits in answer["logprob_bits"]]


def ask_all(cluster, path):
    answers = []
    for prompt in PROMPTS:
        answer = cluster.generate(prompt, raw=True, max_tokens=TOKENS, temperature=0, logprobs=1)
        assert answer["path"] == path, (answer["path"], path)
        answers.append(answer)
    return answers


def alone(kv_type):
    with Cluster(sets=[f"engine.kv_type={kv_type}",
                       "router.colocate_below_tokens=1000000"]) as cluster:
        return ask_all(cluster, "colocated")


def converting(kv_type, transport):
    return ["kv_transfer.allow_conversion=true", f"workers.decode.0.kv_type={kv_type}",
            f"kv_transfer.transport={transport}", "router.colocate_below_tokens=0"]


def check_link(cluster, kv_type):
    for name, peer in (("prefill-0", "decode-0"), ("decode-0", "prefill-0")):
        links = cluster.metrics(name).find("baton_transport_info", peer=peer)
        assert len(links) == 1, links
        labels = links[0][0]
        assert labels["conversion"] == f"bf16 to {kv_type}", labels
        assert labels["mixed_numerics"] == "true", labels
    log = cluster.text_log()
    assert "pushed KV is converted: answers depend on the path" in log
    assert cluster.metrics("prefill-0").sum("baton_kv_config_info", dtype="bf16") == 1
    assert cluster.metrics("decode-0").sum("baton_kv_config_info", dtype=kv_type) == 1


def answers_are_close(kv_type, transport, expected):
    with Cluster(sets=converting(kv_type, transport)) as cluster:
        check_link(cluster, kv_type)
        pushed = 0
        for prompt, answer, other in zip(PROMPTS, ask_all(cluster, "disaggregated"), expected):
            kv = answer["kv"]
            assert kv["bytes"] == kv["blocks"] * BLOCK_BYTES[kv_type] * LAYERS, kv
            pushed += kv["bytes"]
            first = FIRST[kv_type]
            assert answer["token_ids"][:first] == other["token_ids"][:first], \
                (kv_type, transport, prompt[-40:], answer["text"], other["text"])
            far = max(abs(a - b) for a, b in zip(logprobs(answer)[:first], logprobs(other)))
            assert far <= TOLERANCE[kv_type], (kv_type, transport, prompt[-40:], far)
            print(f"  {kv_type} over {transport}: {answer['text']!r}, alone {other['text']!r}, "
                  f"log probabilities within {far:.3f}", flush=True)
        cluster.wait_idle(1)
        for name in ("prefill-0", "decode-0"):
            moved = int(cluster.metrics(name).sum("baton_kv_transfer_bytes_total"))
            assert moved == pushed, (name, moved, pushed)
        # Sums are over what arrives: the converted bytes.
        compared = cluster.metrics("decode-0")
        blocks = pushed // BLOCK_BYTES[kv_type]
        assert compared.sum("baton_kv_blocks_compared_total", result="right") == blocks
        assert compared.sum("baton_kv_blocks_compared_total", result="wrong") == 0


def bf16_becomes_f16():
    expected = alone("f16")
    answers_are_close("f16", "shm", expected)
    answers_are_close("f16", "tcp", expected)


def bf16_becomes_int8():
    expected = alone("int8")
    answers_are_close("int8", "shm", expected)
    answers_are_close("int8", "tcp", expected)


def bf16_becomes_f32():
    answers_are_close("f32", "shm", alone("f32"))


def without_the_key_the_pair_is_refused():
    sets = [s for s in converting("int8", "auto") if "allow_conversion" not in s]
    with Cluster(sets=sets, ready_s=90, up_flags=["--no-restart"]) as cluster:
        end = time.monotonic() + 20
        while "link refused" not in cluster.text_log() and time.monotonic() < end:
            time.sleep(0.1)
        log = cluster.text_log()
        assert "link refused" in log
        assert "layout.element_type differs" in log, log
        assert "kv_transfer.allow_conversion" in log, log
        answer = cluster.generate(PROMPTS[0], raw=True, max_tokens=4, temperature=0)
        assert answer["path"] in ("colocated", "fallback"), answer["path"]
        assert answer["token_ids"], answer
        assert not cluster.metrics("decode-0").find("baton_transport_info")
        for allow, said in (("false", "they will not pair; kv_transfer.allow_conversion: true"),
                            ("true", "what is pushed is converted")):
            done = subprocess.run(
                [cluster.binary, "doctor", "--config", str(cluster.path / "cluster.yaml"), "--set",
                 "workers.decode.0.kv_type=int8", "--set", f"kv_transfer.allow_conversion={allow}"],
                capture_output=True, timeout=60)
            assert said in done.stdout.decode(), (allow, done.stdout.decode())


if __name__ == "__main__":
    run(bf16_becomes_f16, bf16_becomes_int8, bf16_becomes_f32, without_the_key_the_pair_is_refused)
