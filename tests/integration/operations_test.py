# SPDX-FileCopyrightText: Baton developers
# SPDX-License-Identifier: Apache-2.0

"""What an operator meets: exit codes with one clear line, probes, drains, and hostile bytes on
every port."""

import concurrent.futures
import pathlib
import random
import signal
import socket
import subprocess
import tempfile
import time

from cluster import (BATON, MODEL, Cluster, config_text, http_get, require_model, rss_bytes, run,
                     words)


def start(*command, timeout=20):
    return subprocess.run([str(BATON), *command], capture_output=True, text=True, timeout=timeout)


def one_clear_line(done, code, *mentions):
    lines = [l for l in done.stderr.strip().splitlines() if l.startswith("baton: ")]
    assert done.returncode == code, (done.returncode, done.stderr)
    assert len(lines) == 1, done.stderr
    for mention in mentions:
        assert mention in lines[0], (mention, lines[0])


def bad_starts_end_with_their_exit_code_and_one_line():
    require_model()
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "c.yaml"
        one_clear_line(start("check-config", str(path)), 78, str(path))
        path.write_text("version: 1\nlimits: {drian: 3s}\n")
        one_clear_line(start("check-config", str(path)), 78, f"{path}:2:10", "did you mean 'drain'")
        one_clear_line(start("serve", "--role", "decode", "--config", str(path)), 78, "drian")
        assert start("serve", "--rloe", "decode").returncode == 2
        assert start("serve", "--role", "cook", "--config", str(path)).returncode == 2
        path.write_text(config_text())
        assert start("check-config", str(path)).returncode == 0

        broken = pathlib.Path(folder) / "broken.gguf"
        for content, mention in ((b"GGUF" + b"\x07\0\0\0" + b"\0" * 64, "version"),
                                 (b"not a model", "GGUF"), (MODEL.read_bytes()[:1 << 20], "")):
            broken.write_bytes(content)
            for role in ("prefill", "decode", "frontend"):
                one_clear_line(start("serve", "--role", role, "--config", str(path), "--set",
                                     f"model.path={broken}"), 78, "broken.gguf", mention)
        one_clear_line(start("serve", "--role", "decode", "--config", str(path), "--set",
                             "model.path=/nonexistent.gguf"), 78, "/nonexistent.gguf")

        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            for role, key in (("frontend", "frontend.http"), ("decode", "workers.decode.0.listen"),
                              ("decode", "workers.decode.0.transfer"),
                              ("prefill", "workers.prefill.0.admin")):
                one_clear_line(start("serve", "--role", role, "--config", str(path), "--set",
                                     f"{key}=127.0.0.1:{port}"), 69, str(port))


def a_required_link_class_that_cannot_come_up_refuses_with_the_reason():
    require_model()
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "c.yaml"
        path.write_text(config_text())
        one_clear_line(start("up", "--no-restart", "--config", str(path), "--set",
                             "kv_transfer.require_rdma=true", timeout=60), 69, "rdma")
        path.write_text(config_text())
        one_clear_line(start("up", "--no-restart", "--config", str(path), "--set",
                             "kv_transfer.min_bandwidth=900GB/s", timeout=60), 69, "bandwidth")


def the_commands_explain_themselves():
    done = start("--help")
    assert done.returncode == 0 and "serve" in done.stdout
    assert start("--version").stdout.startswith("baton ")
    assert start("generate", "--help").returncode == 0
    assert start("nonsense").returncode == 2
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "c.yaml"
        path.write_text(config_text())
        done = start("print-config", "--config", str(path), "--set", "limits.drain=7s")
        assert "drain: 7s  # flag" in done.stdout, done.stdout
        done = start("doctor", "--config", str(path), "--set", f"model.path={MODEL}")
        assert done.returncode == 0, done.stdout + done.stderr
        assert "links: no prefill worker runs" in done.stdout, done.stdout
        line = next(one for one in done.stdout.splitlines() if "transports: UCX" in one)
        assert line.startswith("ok ") and " sysv" in line and " tcp" in line, done.stdout
        done = start("doctor", "--config", str(path), "--set", f"model.path={MODEL}",
                     "--set", "kv_transfer.require_rdma=true")
        assert done.returncode == 1 and "fail" in done.stdout, done.stdout + done.stderr


def address(text):
    host, port = text.removeprefix("http://").rstrip("/").rsplit(":", 1)
    return host, int(port)


def hostile_bytes_on_every_port_change_nothing():
    with Cluster(sets=["router.colocate_below_tokens=32"]) as cluster:
        expected = cluster.generate(words(200, 9), raw=True, max_tokens=8, temperature=0)
        places = [address(cluster.http), address(cluster.grpc)]
        for name, role in cluster.roles.items():
            places.append(address(role["admin"]))
            if role["role"] != "frontend":
                places.append(address(role["listen"]))
        text = (cluster.path / "cluster.yaml").read_text()
        for line in text.splitlines():
            if " transfer: " in line:  # of a worker; kv_transfer is no place
                places.append(address(line.split(" transfer: ")[1].split(",")[0]))
        memory = {n: rss_bytes(cluster.pid(n)) for n in cluster.roles}
        chance = random.Random(5)
        for place in places:
            for size in [0, 1, 3, 4, 8, 16, 64, 1000, 70000] * 4:
                try:
                    with socket.create_connection(place, timeout=2) as s:
                        head = chance.choice([b"", b"\xff\xff\xff\xff", b"\0\0\0\x7f", b"POST "])
                        s.sendall(head + chance.randbytes(size))
                        if chance.random() < 0.5:
                            s.settimeout(0.02)
                            s.recv(100)
                except OSError:
                    pass
        answer = cluster.generate(words(200, 9), raw=True, max_tokens=8, temperature=0)
        assert answer["token_ids"] == expected["token_ids"]
        assert cluster.process.poll() is None
        for name in cluster.roles:
            assert cluster.pid(name) == cluster.roles[name]["pid"], f"{name} restarted"
            assert rss_bytes(cluster.pid(name)) < memory[name] + 64e6, name
            assert http_get(cluster.admin(name), "/live")[0] == 200
        cluster.wait_idle(1)


def a_drain_lets_streams_end_and_refuses_new_ones():
    with Cluster(sets=["router.colocate_below_tokens=32"]) as cluster:
        with concurrent.futures.ThreadPoolExecutor(5) as pool:
            running = [pool.submit(cluster.generate, words(100, 40 + i), raw=True, max_tokens=80,
                                   temperature=0) for i in range(4)]
            time.sleep(1.0)
            cluster.process.send_signal(signal.SIGTERM)
            time.sleep(0.3)
            try:
                status, _ = http_get(cluster.http, "/ready")
                assert status == 503, status
            except OSError:
                pass  # already closed: nothing was running any more
            for answer in running:
                result = answer.result()
                assert result["finish_reason"] in ("stop", "length"), result
        assert cluster.process.wait(40) == 0


def probes_and_logs_say_what_they_should():
    marker = "zebra-quartz-marker"
    with Cluster(up_flags=["--log-level", "debug"]) as cluster:
        for name in cluster.roles:
            for path in ("/live", "/ready", "/health"):
                assert http_get(cluster.admin(name), path)[0] == 200, (name, path)
        assert http_get(cluster.http, "/ready")[0] == 200
        cluster.generate(f"Repeat: {marker}", max_tokens=4)
        cluster.post("/v1/chat/completions", {"messages": [{"role": "user", "content": marker}],
                                              "model": "nope"})
        assert marker not in cluster.text_log(), "a prompt stands in the log"


LINK_GAUGES = ("bandwidth_bytes_per_second", "latency_seconds", "per_operation_seconds",
               "age_seconds", "in_flight_bytes")


def links_and_pushes_are_measured_and_shown():
    with Cluster(sets=["router.colocate_below_tokens=32"]) as cluster:
        for seed in range(60, 64):
            kv = cluster.generate(words(600, seed), raw=True, max_tokens=2, temperature=0)["kv"]
            assert kv["predicted_ms"] > 0 and kv["transfer_ms"] > 0, kv
        transport = kv["transport"]
        pages = {name: cluster.metrics(name) for name in ("prefill-0", "decode-0")}
        for name, peer in (("prefill-0", "decode-0"), ("decode-0", "prefill-0")):
            for gauge in LINK_GAUGES:
                found = pages[name].find(f"baton_link_{gauge}", peer=peer, transport=transport)
                assert len(found) == 1 and found[0][1] >= 0, (name, gauge, found)
            info = pages[name].find("baton_transport_info", peer=peer)
            assert [i[0]["class"] for i in info] == ["shm"], info
            assert [i[0]["expected"] for i in info] == ["shm"], info
        assert pages["prefill-0"].sum("baton_link_age_seconds") < 10
        end = time.monotonic() + 5  # the owner hears of it by heartbeats
        rate = "baton_link_bandwidth_bytes_per_second"
        while cluster.metrics("prefill-0").sum(rate) != cluster.metrics("decode-0").sum(rate):
            assert time.monotonic() < end, "the two ends say different things of their link"
            time.sleep(0.1)
        frontend = cluster.metrics(cluster.names("frontend")[0])
        ratio = "baton_kv_transfer_measured_to_predicted_ratio"
        assert frontend.sum(f"{ratio}_count", transport=transport) == 4
        assert frontend.find(f"{ratio}_count", transport="tcp"), "a known label value is missing"
        over = [line for line in cluster.text_log().splitlines() if "request over" in line]
        assert len(over) == 4 and all(f"kv_transport={transport}" in line and "kv_predicted_ms=" in
                                      line and "kv_transfer_ms=" in line for line in over), over
        done = start("doctor", "--config", str(cluster.path / "cluster.yaml"))
        line = next(one for one in done.stdout.splitlines() if "link: " in one)
        assert line.startswith("ok ") and f"prefill-0 -> decode-0 over {transport}:" in line, line
        assert "a prompt of 1024 tokens takes" in line, line


def a_restarted_role_is_told_by_up_and_serves_again():
    with Cluster() as cluster:
        before = cluster.pid("prefill-0")
        cluster.kill("prefill-0")
        end = time.monotonic() + 20
        while cluster.pid("prefill-0") == before:
            assert time.monotonic() < end, "prefill-0 was not restarted"
            time.sleep(0.1)
        for seed in range(3, 1000):  # each another prompt: decode remembers those it ran itself
            answer = cluster.generate(words(600, seed), raw=True, max_tokens=4, temperature=0)
            if answer["path"] == "disaggregated":
                break
            assert time.monotonic() < end, answer
            time.sleep(0.3)


if __name__ == "__main__":
    run(bad_starts_end_with_their_exit_code_and_one_line, the_commands_explain_themselves,
        links_and_pushes_are_measured_and_shown,
        a_required_link_class_that_cannot_come_up_refuses_with_the_reason,
        probes_and_logs_say_what_they_should, hostile_bytes_on_every_port_change_nothing,
        a_drain_lets_streams_end_and_refuses_new_ones,
        a_restarted_role_is_told_by_up_and_serves_again)
