# SPDX-FileCopyrightText: Baton developers
# SPDX-License-Identifier: Apache-2.0

"""What memory a worker takes: its packed weights, what it touched of KV pools, and little else."""

import re
import time

from cluster import BLOCK_BYTES, LAYERS, Cluster, memory_bytes, run, words

MIB = 1 << 20
POOL_BLOCKS = 256 * MIB // (BLOCK_BYTES["bf16"] * LAYERS)
POOL_BYTES = POOL_BLOCKS * BLOCK_BYTES["bf16"] * LAYERS
REST_BYTES = 64 * MIB
AHEAD_BYTES = 20 * MIB
PAGES_BYTES = 2 * MIB  # of a pool when ready: what peers verify their way to it by


def a_worker_takes_its_weights_the_touched_pool_and_64_mib():
    with Cluster(kv_memory="256MiB") as cluster:
        weights = int(re.search(r"\bweight_bytes=(\d+)", cluster.text_log())[1])
        assert weights > 64e6, weights
        workers = cluster.names("prefill") + cluster.names("decode")

        def check(moment):
            pools = {}
            for name in workers:
                both, pools[name] = memory_bytes(cluster.pid(name), POOL_BYTES)
                assert weights < both, (moment, name, both)
                rest = both - weights - pools[name]
                assert rest <= REST_BYTES, f"{moment} {name}: {rest / MIB:.1f} MiB"
            return pools

        for name, pool in check("ready").items():
            assert pool <= PAGES_BYTES, f"{name}: {pool / MIB:.1f} MiB of the pool are touched"
        for seed in range(1, 4):
            assert cluster.generate(words(900, seed), raw=True, max_tokens=4)["path"] == \
                "disaggregated"
            cluster.generate(words(50, seed), raw=True, max_tokens=40)
        time.sleep(1)  # pages are touched ahead of use, and huge where they are full
        pools = check("after requests")
        held = {}
        for name in workers:
            blocks = POOL_BLOCKS - cluster.kv_blocks(name)["free"]
            held[name] = blocks * BLOCK_BYTES["bf16"] * LAYERS
            assert 3 * 900 // 16 <= blocks and held[name] <= pools[name], (name, blocks, pools)
        # Not much more is touched than blocks are held; a writer has its peer's as well.
        prefill, decode = workers
        assert pools[decode] <= held[decode] + AHEAD_BYTES, (pools, held)
        assert pools[prefill] <= held[prefill] + held[decode] + AHEAD_BYTES, (pools, held)


if __name__ == "__main__":
    run(a_worker_takes_its_weights_the_touched_pool_and_64_mib)
