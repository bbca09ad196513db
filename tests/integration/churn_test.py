# SPDX-FileCopyrightText: Baton developers
# SPDX-License-Identifier: Apache-2.0

"""2,000 requests, a third of them cancelled at random moments: nothing stays owned, memory does
not grow.  Prompts are short and the threshold is lowered so that most are disaggregated."""

import concurrent.futures
import json
import random
import socket
import sys
import threading
import time

from cluster import MODEL_NAME, Cluster, rss_bytes, run, words

TOTAL = int(sys.argv.pop(sys.argv.index("--total") + 1)) if "--total" in sys.argv else 2000
if "--total" in sys.argv:
    sys.argv.remove("--total")


def one(cluster, number, counts, lock):
    chance = random.Random(number)
    body = json.dumps({"model": MODEL_NAME, "prompt": words(chance.randint(20, 60), number),
                       "max_tokens": chance.randint(1, 8), "temperature": 0, "stream": True})
    host, port = cluster.http.split(":")
    kind = "done"
    with socket.create_connection((host, int(port)), timeout=120) as s:
        s.sendall((f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                   f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n{body}").encode())
        if chance.random() < 1 / 3:
            s.settimeout(chance.expovariate(8) + 0.001)
            try:
                while s.recv(65536):
                    pass
            except socket.timeout:
                kind = "cancelled"
        else:
            data = b""
            while chunk := s.recv(65536):
                data += chunk
            if b" 200 " not in data.split(b"\r\n", 1)[0] or b"data: [DONE]" not in data:
                kind = "wrong"
                print(data[:400], file=sys.stderr)
    with lock:
        counts[kind] = counts.get(kind, 0) + 1


def two_thousand_with_a_third_cancelled_leave_nothing_behind():
    with Cluster(sets=["router.colocate_below_tokens=32", "engine.prefix_cache=false"]) as cluster:
        counts, lock = {}, threading.Lock()
        memory = []
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for half in range(2):
                numbers = range(half * TOTAL // 2, (half + 1) * TOTAL // 2)
                list(pool.map(lambda n: one(cluster, n, counts, lock), numbers))
                cluster.wait_idle(1)
                memory.append({n: rss_bytes(cluster.pid(n)) for n in cluster.roles})
        print(counts)
        assert counts.get("wrong", 0) == 0, counts
        assert counts["cancelled"] > TOTAL / 12, counts
        for name, after in memory[1].items():
            before = memory[0][name]
            print(f"{name}: {before / 1e6:.1f} MB -> {after / 1e6:.1f} MB")
            assert after <= before * 1.05 + 8e6, (name, before, after)
        frontend = cluster.metrics(cluster.names("frontend")[0])
        ended = frontend.sum("baton_requests_total")
        assert ended == TOTAL, ended
        assert frontend.sum("baton_requests_total", path="disaggregated") > TOTAL / 2
        assert frontend.sum("baton_requests_running") == 0
        assert frontend.sum("baton_requests_waiting") == 0
        time.sleep(0.1)


if __name__ == "__main__":
    run(two_thousand_with_a_third_cancelled_leave_nothing_behind)
