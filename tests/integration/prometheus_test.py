# SPDX-FileCopyrightText: Baton developers
# SPDX-License-Identifier: Apache-2.0

"""The real Prometheus scrapes all three roles; TTFT and ITL are there by path; promtool's lint
passes; the exposition stays fast while a prompt is computed."""

import json
import pathlib
import shutil
import subprocess
import tempfile
import threading
import time
import urllib.parse

from cluster import ROOT, Cluster, free_ports, http_get, run, skip, words


def promtool_lint(cluster):
    for name in cluster.roles:
        text = cluster.metrics(name).text
        done = subprocess.run(["promtool", "check", "metrics"], input=text.encode(),
                              capture_output=True)
        assert done.returncode == 0, (name, done.stderr.decode())


def query(cluster, address, expression):
    status, text = http_get(address, "/api/v1/query?query=" + urllib.parse.quote(expression))
    assert status == 200, text
    return json.loads(text)["data"]["result"]


def known_label_values_exist_from_the_start(cluster):
    page = cluster.metrics(cluster.names("frontend")[0])
    for path in ("colocated", "disaggregated", "fallback"):
        assert page.find("baton_time_to_first_token_seconds_count", path=path), path
        assert page.find("baton_inter_token_latency_seconds_count", path=path), path
        for outcome in ("stop", "length", "cancelled", "rejected", "error", "timeout"):
            assert page.find("baton_requests_total", path=path, outcome=outcome), (path, outcome)
    for stage in ("queue", "reserve", "prefill", "kv_exposed", "first_token", "retry", "decode"):
        assert page.find("baton_stage_duration_seconds_count", stage=stage), stage
    for name in cluster.names("prefill") + cluster.names("decode"):
        blocks = cluster.kv_blocks(name)
        info = cluster.metrics(name).find("baton_kv_config_info")
        assert len(info) == 1 and int(info[0][0]["num_blocks"]) == sum(blocks.values()), info


def stages_add_up_to_ttft(cluster):
    page = cluster.metrics(cluster.names("frontend")[0])
    ttft = page.sum("baton_time_to_first_token_seconds_sum")
    parts = sum(page.sum("baton_stage_duration_seconds_sum", stage=s)
                for s in ("queue", "reserve", "prefill", "kv_exposed", "first_token", "retry"))
    assert abs(parts - ttft) <= 0.05 * ttft + 0.005, (parts, ttft)


def a_scrape_does_not_wait_for_a_prompt(cluster):
    worst = []

    def scrape():
        end = time.monotonic() + 2
        while time.monotonic() < end:
            start = time.monotonic()
            cluster.metrics("prefill-0")
            worst.append(time.monotonic() - start)
            time.sleep(0.05)

    thread = threading.Thread(target=scrape)
    thread.start()
    cluster.generate(words(2000, 77), raw=True, max_tokens=2, temperature=0)
    thread.join()
    worst.sort()
    print(f"  scrape p50 {worst[len(worst) // 2] * 1e3:.1f} ms, max {worst[-1] * 1e3:.1f} ms")
    assert worst[len(worst) // 2] < 0.1


def prometheus_sees_every_role_and_both_paths():
    if not shutil.which("prometheus") or not shutil.which("promtool"):
        skip("prometheus is not installed (deploy/install.sh)")
    with Cluster() as cluster, tempfile.TemporaryDirectory(prefix="baton-prometheus-") as folder:
        known_label_values_exist_from_the_start(cluster)
        address = f"127.0.0.1:{free_ports(1)[0]}"
        config = (ROOT / "deploy" / "prometheus.yml").read_text()
        for name, place in (("frontend", "127.0.0.1:8002"), ("prefill-0", "127.0.0.1:8102"),
                            ("decode-0", "127.0.0.1:8202")):
            names = cluster.names("frontend") if name == "frontend" else [name]
            assert place in config, place
            config = config.replace(place, cluster.admin(names[0]))
        config = config.replace("scrape_interval: 5s", "scrape_interval: 1s")
        path = pathlib.Path(folder) / "prometheus.yml"
        path.write_text(config)
        shutil.copy(ROOT / "deploy" / "rules.yml", folder)
        subprocess.run(["promtool", "check", "config", str(path)], check=True, capture_output=True)
        server = subprocess.Popen(["prometheus", f"--config.file={path}",
                                   f"--storage.tsdb.path={folder}/data",
                                   f"--web.listen-address={address}"],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            cluster.generate("Say hello.", max_tokens=8)
            cluster.generate(words(700, 5), raw=True, max_tokens=8, temperature=0)
            a_scrape_does_not_wait_for_a_prompt(cluster)
            promtool_lint(cluster)
            stages_add_up_to_ttft(cluster)
            end = time.monotonic() + 30
            while True:
                try:
                    up = query(cluster, address, 'up{job="baton"} == 1')
                    paths = {r["metric"]["path"] for r in query(
                        cluster, address,
                        "sum by (path) (baton_time_to_first_token_seconds_count) > 0")}
                    itl = {r["metric"]["path"] for r in query(
                        cluster, address,
                        "sum by (path) (baton_inter_token_latency_seconds_count) > 0")}
                    if len(up) == 3 and {"colocated", "disaggregated"} <= paths & itl:
                        break
                except (OSError, AssertionError):
                    pass
                assert time.monotonic() < end, "Prometheus did not see it in 30 s"
                time.sleep(0.3)
            assert {r["metric"]["role"] for r in query(cluster, address, "baton_build_info")} == {
                "frontend", "prefill", "decode"}
        finally:
            server.terminate()
            server.wait(10)


if __name__ == "__main__":
    run(prometheus_sees_every_role_and_both_paths)
