# SPDX-FileCopyrightText: Baton developers
# SPDX-License-Identifier: Apache-2.0

"""Two "hosts" on this machine: network namespaces joined by a veth link whose speed is set.

Needs root (ip netns, tc); without, Hosts() skips.
"""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time

from cluster import BATON, MODEL, MODEL_NAME, skip, words

NEAR, FAR = "baton-near", "baton-far"  # front end and decode; prefill
NEAR_IP, FAR_IP = "192.0.2.1", "192.0.2.2"


def sh(*words, check=True):
    return subprocess.run(words, check=check, capture_output=True, text=True)


class Hosts(contextlib.AbstractContextManager):
    def __init__(self):
        if os.geteuid() != 0:
            skip("needs root for network namespaces")
        self.__exit__()
        if sh("ip", "netns", "add", NEAR, check=False).returncode != 0:
            skip("cannot make network namespaces here")
        sh("ip", "netns", "add", FAR)
        sh("ip", "link", "add", "bn0", "netns", NEAR, "type", "veth", "peer", "name", "bf0",
           "netns", FAR)
        for space, device, address in ((NEAR, "bn0", NEAR_IP), (FAR, "bf0", FAR_IP)):
            sh("ip", "-n", space, "addr", "add", f"{address}/24", "dev", device)
            sh("ip", "-n", space, "link", "set", device, "up")
            sh("ip", "-n", space, "link", "set", "lo", "up")
        end = time.monotonic() + 10
        while not all("LOWER_UP" in sh("ip", "-n", space, "link", "show", device).stdout
                      for space, device in ((NEAR, "bn0"), (FAR, "bf0"))):
            assert time.monotonic() < end, "the link between the hosts does not come up"
            time.sleep(0.1)
        time.sleep(1)  # addresses and carrier settle; UCX takes only devices that run

    def throttle(self, bytes_per_second):
        """The far host's sending side."""
        sh("tc", "-n", FAR, "qdisc", "replace", "dev", "bf0", "root", "tbf", "rate",
           f"{int(bytes_per_second * 8)}bit", "burst", "256kb", "latency", "2000ms")

    def __exit__(self, *_):
        for space in (NEAR, FAR):
            sh("ip", "netns", "del", space, check=False)


class Roles(contextlib.AbstractContextManager):
    """One front end and decode on the near host, one prefill on the far one, by `serve`."""

    def __init__(self, sets=()):
        self.folder = tempfile.TemporaryDirectory(prefix="baton-hosts-")
        self.path = pathlib.Path(self.folder.name)
        config = self.path / "cluster.yaml"
        config.write_text(f"""version: 1
model: {{path: {MODEL}, name: {MODEL_NAME}}}
frontend: {{http: {NEAR_IP}:8000, grpc: {NEAR_IP}:8001, admin: {NEAR_IP}:8002}}
workers:
  prefill:
    - {{name: prefill-0, listen: {FAR_IP}:8101, admin: {FAR_IP}:8102, transfer: {FAR_IP}:8103,
       threads: 1, kv_memory: 256MiB}}
  decode:
    - {{name: decode-0, listen: {NEAR_IP}:8201, admin: {NEAR_IP}:8202, transfer: {NEAR_IP}:8203,
       threads: 1, kv_memory: 256MiB}}
engine: {{chunk_tokens: 2048}}
""")
        self.processes = []
        for space, role, name, device in ((FAR, "prefill", "prefill-0", "bf0"),
                                          (NEAR, "decode", "decode-0", "bn0"),
                                          (NEAR, "frontend", "", "bn0")):
            command = ["ip", "netns", "exec", space, str(BATON), "serve", "--role", role,
                       "--config", str(config), "--set", f"kv_transfer.devices=[{device}]",
                       "--set", "kv_transfer.transport=tcp"]  # the "hosts" share memory
            if name:
                command += ["--name", name]
            for value in sets:
                command += ["--set", value]
            log = open(self.path / f"{role}.log", "wb")
            self.processes.append(subprocess.Popen(command, stdout=log, stderr=log))
        end = time.monotonic() + 90
        while not self.linked():
            if time.monotonic() > end or any(p.poll() is not None for p in self.processes):
                self.show_logs()
                self.__exit__(None)
                raise RuntimeError("the roles are not ready")
            time.sleep(0.2)

    def linked(self):
        """Whether the front end sees both workers and their link: before, decode computes prompts."""
        body = sh("ip", "netns", "exec", NEAR, "curl", "-s", "-m", "5", "--fail",
                  f"http://{NEAR_IP}:8002/ready", check=False).stdout
        if not body:
            return False
        detail = json.loads(body)["detail"]
        return detail["links"] >= 1 and set(detail["workers"].values()) == {"ready"}

    def ask(self, seed, tokens=2000):
        prompt = self.path / "prompt"
        prompt.write_text(words(tokens, seed))
        done = sh("ip", "netns", "exec", NEAR, str(BATON), "generate", "--grpc",
                  f"{NEAR_IP}:8001", "--json", "--raw", "--temperature", "0", "--max-tokens", "4",
                  "--prompt-file", str(prompt), check=False)
        if done.returncode != 0:
            self.show_logs()
            raise RuntimeError(done.stderr)
        answer = json.loads(done.stdout)
        assert answer["path"] == "disaggregated", answer
        assert answer["kv"]["transport"] == "tcp", answer["kv"]
        return answer

    def show_logs(self):
        for log in sorted(self.path.glob("*.log")):
            print("──", log.name)
            print("\n".join(log.read_text(errors="replace").splitlines()[-25:]))

    def __exit__(self, *_):
        for process in reversed(self.processes):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.processes:
            try:
                process.wait(40)
            except subprocess.TimeoutExpired:
                process.kill()
        self.folder.cleanup()
