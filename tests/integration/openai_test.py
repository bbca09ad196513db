# SPDX-FileCopyrightText: Baton developers
# SPDX-License-Identifier: Apache-2.0

"""An unmodified `openai` client (a pinned wheel in a virtual environment of its own)."""

import pathlib
import subprocess
import sys

from cluster import MODEL_NAME, ROOT, Cluster, run, skip, words

VENV = ROOT / "build" / "venv-openai"
PINS = ["openai==3.57.0"]


def reexec_in_venv():
    python = VENV / "bin" / "python"
    if pathlib.Path(sys.executable).resolve().parent != python.parent and "--inside" not in sys.argv:
        if not (VENV / "ready").exists():
            subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
            done = subprocess.run([str(python), "-m", "pip", "install", "-q", *PINS],
                                  capture_output=True, text=True)
            if done.returncode != 0:
                skip("the openai wheel cannot be had: " + done.stderr.strip()[-200:])
            (VENV / "ready").touch()
        sys.exit(subprocess.run([str(python), __file__, *sys.argv[1:], "--inside"]).returncode)
    sys.argv.remove("--inside")


def client_of(cluster):
    import openai
    return openai.OpenAI(base_url=f"http://{cluster.http}/v1", api_key="none", max_retries=0)


def chat_completions_models_streaming_and_errors():
    import openai
    with Cluster() as cluster:
        client = client_of(cluster)
        assert MODEL_NAME in [m.id for m in client.models.list()]
        assert client.models.retrieve(MODEL_NAME).id == MODEL_NAME

        question = [{"role": "user", "content": "What is the capital of France? Answer in one word."}]
        whole = client.chat.completions.create(model=MODEL_NAME, messages=question, temperature=0,
                                               max_tokens=24)
        assert whole.choices[0].finish_reason in ("stop", "length")
        assert "Paris" in whole.choices[0].message.content
        assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens

        stream = client.chat.completions.create(model=MODEL_NAME, messages=question, temperature=0,
                                                max_tokens=24, stream=True,
                                                stream_options={"include_usage": True})
        chunks = list(stream)
        assert len({c.id for c in chunks}) == 1
        text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        assert text == whole.choices[0].message.content
        assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens

        long = client.completions.create(model=MODEL_NAME, prompt=words(600, 3), max_tokens=8,
                                         temperature=0, logprobs=2)
        assert long.usage.prompt_tokens == 600
        assert len(long.choices[0].logprobs.tokens) == long.usage.completion_tokens

        two = client.chat.completions.create(model=MODEL_NAME, messages=question, n=2, seed=5,
                                             max_tokens=8, logprobs=True, top_logprobs=2)
        assert [c.index for c in two.choices] == [0, 1]
        assert len(two.choices[0].logprobs.content) > 0

        for bad, error in ((dict(model="nope", messages=question), openai.NotFoundError),
                           (dict(model=MODEL_NAME, messages=[]), openai.BadRequestError),
                           (dict(model=MODEL_NAME, messages=question, temperature=3),
                            openai.BadRequestError),
                           (dict(model=MODEL_NAME, messages=[{"role": "user",
                                                              "content": words(9000)}]),
                            openai.BadRequestError)):
            try:
                client.chat.completions.create(**bad)
            except error as raised:
                assert set(raised.body) >= {"message", "type", "param", "code"}, raised.body
            else:
                raise AssertionError(f"{bad.keys()} was not refused")
        cluster.wait_idle(1)


if __name__ == "__main__":
    reexec_in_venv()
    run(chat_completions_models_streaming_and_errors)
