# SPDX-FileCopyrightText: Baton developers
# SPDX-License-Identifier: Apache-2.0

"""Inside a guest (guest.sh): a whole cluster whose KV goes over RDMA and nothing else.

    cluster_test.py MODEL

MODEL is tests/data/tiny_model.py's, small enough for an emulated processor.
"""

import pathlib
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "integration"))
from cluster import Cluster, run  # noqa: E402

MODEL = sys.argv.pop(1)  # run() takes the rest for names of tests
HOST = "192.0.2.1"  # of rxe0
PROMPT = "A prompt of this model has as many tokens as bytes. " * 14  # 728: disaggregated


def start(*sets):
    return Cluster(sets=["kv_transfer.require_rdma=true", "kv_transfer.devices=[rxe0:1]", *sets],
                   kv_memory="16MiB", ready_s=200, model=MODEL, host=HOST)


def ask(cluster, prompt=PROMPT):
    return cluster.generate(prompt, raw=True, temperature=0, max_tokens=8, logprobs=2)


def bits(answer):
    return answer["token_ids"], answer["logprob_bits"]


def a_request_is_handed_over_by_rdma_and_its_answer_is_the_same():
    with start("router.colocate_below_tokens=1000000") as cluster:
        alone = ask(cluster)
    assert alone["path"] == "colocated", alone
    with start() as cluster:
        answer = ask(cluster)
        kv = answer["kv"]
        assert answer["path"] == "disaggregated", answer
        assert kv["transport"].startswith("rc"), kv
        assert bits(answer) == bits(alone), (bits(answer), bits(alone))
        cluster.wait_idle(10)
        decode = cluster.metrics("decode-0")
        assert decode.sum("baton_transport_info", **{"class": "rdma", "data_path": "A"}) == 1, (
            decode.find("baton_transport_info"))
        assert decode.sum("baton_kv_blocks_compared_total", result="right") > 0
        assert decode.sum("baton_kv_blocks_compared_total", result="wrong") == 0
        print(f"  {kv['bytes']} bytes over {kv['transport']}: transfer {kv['transfer_ms']:.0f} ms, "
              f"exposed {kv['exposed_ms']:.0f} ms")


def a_prefill_that_dies_costs_one_path_and_no_block():
    with start() as cluster:
        before = ask(cluster)
        assert before["path"] == "disaggregated", before
        cluster.kill("prefill-0")
        without = ask(cluster, PROMPT[1:])  # no part of it is cached
        assert without["token_ids"], without
        # The fence of a reliable connection gives its blocks back; `up` starts the worker again.
        end = time.monotonic() + 120
        number = 0
        while True:
            number += 1
            again = ask(cluster, f"{number} {PROMPT}")
            if again["path"] == "disaggregated":
                break
            assert time.monotonic() < end, again
            time.sleep(1)
        assert again["kv"]["transport"].startswith("rc"), again["kv"]
        cluster.wait_idle(10)


if __name__ == "__main__":
    run(a_request_is_handed_over_by_rdma_and_its_answer_is_the_same,
        a_prefill_that_dies_costs_one_path_and_no_block)
