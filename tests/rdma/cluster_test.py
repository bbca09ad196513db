# SPDX-FileCopyrightText: Baton developers
# SPDX-License-Identifier: Apache-2.0

"""A cluster whose workers reach each other by RDMA only, inside a guest (guest.sh).

  cluster_test.py BATON FOLDER

FOLDER holds tiny.gguf.  Two front ends use the same workers: one hands every prompt from a
prefill worker to the decode worker, the other lets decode compute it, and both must give the same
answer (K8).  Only the Python standard library.
"""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

HOST = "192.0.2.1"
PROMPT_BYTES = 700


def config_text(http, threshold):
    return f"""version: 1
model: {{path: /tmp/tiny.gguf, name: tiny, max_context: 2048}}
frontend: {{http: {HOST}:{http}, grpc: {HOST}:{http + 1}, admin: {HOST}:{http + 2}}}
workers:
  prefill:
    - {{name: prefill-0, listen: {HOST}:8101, admin: {HOST}:8102,
       transfer: {HOST}:8103, threads: 1, kv_memory: 64MiB}}
  decode:
    - {{name: decode-0, listen: {HOST}:8201, admin: {HOST}:8202, transfer: {HOST}:8203,
       threads: 1, kv_memory: 64MiB}}
router: {{colocate_below_tokens: {threshold}}}
engine: {{chunk_tokens: 64, prefix_cache: false}}
kv_transfer: {{require_rdma: true, devices: ["rxe0:1"], check_one_in: 1}}
limits: {{drain: 2s}}
"""


class Roles:
    """Processes of `baton serve`, and how to ask them."""

    def __init__(self, baton, folder):
        self.baton, self.folder = baton, pathlib.Path(folder)
        shutil.copy(self.folder / "tiny.gguf", "/tmp/tiny.gguf")
        self.processes = {}
        self.configs = {}
        for name, http, threshold in (("apart", 8000, 0), ("together", 8010, 1000000)):
            path = pathlib.Path(f"/tmp/{name}.yaml")
            path.write_text(config_text(http, threshold))
            self.configs[name] = path

    def start(self, role, name="", config="apart"):
        command = [self.baton, "serve", "--role", role, "--config", str(self.configs[config])]
        if name:
            command += ["--name", name]
        label = name or config
        log = open(self.folder / f"{label}.log", "wb")
        self.processes[label] = subprocess.Popen(command, stdout=log, stderr=log)

    def check_alive(self):
        for label, process in self.processes.items():
            if process.poll() is not None:
                raise RuntimeError(f"{label} has ended with {process.returncode}")

    def show_logs(self):
        for label in self.processes:
            print("──", label)
            text = (self.folder / f"{label}.log").read_text(errors="replace")
            print("\n".join(text.splitlines()[-25:]))

    def stop(self):
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()

    def ask(self, front_end, prompt):
        """One greedy answer as JSON."""
        port = {"apart": 8001, "together": 8011}[front_end]
        path = pathlib.Path(f"/tmp/prompt-{threading.get_ident()}")
        path.write_text(prompt)
        done = subprocess.run(
            [self.baton, "generate", "--grpc", f"{HOST}:{port}", "--json", "--raw",
             "--temperature", "0", "--max-tokens", "8", "--logprobs", "2", "--prompt-file",
             str(path)], capture_output=True, text=True, timeout=120)
        if done.returncode != 0:
            raise RuntimeError(f"generate: {done.returncode}: {done.stderr}")
        return json.loads(done.stdout)


def get(url, timeout=5):
    try:
        with urllib.request.urlopen(url, timeout=timeout) as response:
            return response.read().decode()
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return ""


def metric(host, port, name, **labels):
    """The sum of the samples with these labels; None without an answer."""
    text = get(f"http://{host}:{port}/metrics")
    if not text:
        return None
    total = 0.0
    for line in text.splitlines():
        match = re.match(rf"{name}(?:\{{(.*)\}})? (\S+)", line)
        if match and all(f'{key}="{value}"' in (match[1] or "") for key, value in labels.items()):
            total += float(match[2])
    return total


def decode_metric(name, **labels):
    return metric(HOST, 8202, name, **labels)


def wait_for(what, condition, seconds, roles=None):
    """How long it took."""
    start = time.monotonic()
    while not condition():
        if roles:
            roles.check_alive()
        if time.monotonic() - start > seconds:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.02)
    return time.monotonic() - start


def linked(port):
    body = get(f"http://{HOST}:{port}/ready")
    if not body:
        return False
    detail = json.loads(body)["detail"]
    return detail["links"] >= 1 and set(detail["workers"].values()) == {"ready"}


def prompt(seed):
    state = seed
    out = []
    for _ in range(PROMPT_BYTES):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        out.append("bcdfgijklmnqruvwxyz"[(state >> 33) % 19])
    return "".join(out)


def bits(answer):
    return answer["token_ids"], answer["logprob_bits"], answer["text"], answer["finish_reason"]


def link_is_rdma():
    up = decode_metric("baton_transport_info", peer="prefill-0", transport="rc_verbs",
                       data_path="A")
    assert up == 1, get(f"http://{HOST}:8202/metrics")


def same_answers(roles, seeds):
    for seed in seeds:
        apart = roles.ask("apart", prompt(seed))
        assert apart["path"] == "disaggregated", apart
        assert apart["kv"]["transport"] == "rc_verbs", apart["kv"]
        together = roles.ask("together", prompt(seed))
        assert together["path"] == "colocated", together
        assert bits(apart) == bits(together), (apart, together)
        print(f"  {apart['prompt_tokens']} tokens: {apart['kv']['bytes']} bytes over RDMA, "
              f"transfer {apart['kv']['transfer_ms']:.0f} ms, exposed "
              f"{apart['kv']['exposed_ms']:.1f} ms; same answer as colocated")
    wrong = decode_metric("baton_kv_blocks_compared_total", result="wrong")
    right = decode_metric("baton_kv_blocks_compared_total", result="right")
    assert wrong == 0 and right > 0, (right, wrong)


def nothing_is_owned():
    return all(decode_metric("baton_kv_blocks", state=state) == 0
               for state in ("used", "reserved", "quarantined"))


def doctor_names_the_device(roles):
    done = subprocess.run([roles.baton, "doctor", "--config", str(roles.configs["apart"])],
                          capture_output=True, text=True, timeout=120)
    lines = [line for line in done.stdout.splitlines() if "RDMA" in line or "rdma" in line]
    print("\n".join("  " + line for line in lines))
    text = "\n".join(lines)
    for wanted in ("rxe0:1", HOST, "RC_RETRY_COUNT", "KEEPALIVE_INTERVAL", "GID"):
        assert wanted in text, (wanted, done.stdout, done.stderr)
    assert done.returncode == 0, done.stdout


def one_host(roles):
    roles.start("decode", "decode-0")
    roles.start("prefill", "prefill-0")
    roles.start("frontend", config="apart")
    roles.start("frontend", config="together")
    wait_for("the links", lambda: linked(8002) and linked(8012), 150, roles)
    link_is_rdma()
    same_answers(roles, (1, 2))
    wait_for("blocks are free", nothing_is_owned, 5)
    doctor_names_the_device(roles)


def main():
    baton, folder = sys.argv[1:]
    roles = Roles(baton, folder)
    start = time.monotonic()
    try:
        one_host(roles)
        print(f"ok      cluster over RDMA ({time.monotonic() - start:.1f} s)")
    except BaseException:
        roles.show_logs()
        raise
    finally:
        roles.stop()


if __name__ == "__main__":
    main()
