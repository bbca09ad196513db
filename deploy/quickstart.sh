#!/usr/bin/env bash
# From a fresh Debian 12 to two answers: installs, builds, gets the default model, starts the
# cluster of config/local.yaml, sends a short prompt (colocated path) and a long one
# (disaggregated path), prints each answer with its path, TTFT and ITL, and stays in the
# foreground until Ctrl-C.
#
#   deploy/quickstart.sh          stays
#   deploy/quickstart.sh --once   stops after the two answers; exit 0 only if both were right
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cd "$root"
once=0
for word in "$@"; do
  case "$word" in
    --once) once=1 ;;
    *) echo "usage: deploy/quickstart.sh [--once]" >&2; exit 2 ;;
  esac
done

deploy/install.sh
deploy/get_model.sh
echo "build: build/baton"
deploy/build.sh

work="$(mktemp -d)"
up=
stop() {
  if [[ -n "$up" ]]; then
    kill -INT "$up" 2>/dev/null || true
    wait "$up" 2>/dev/null || true
  fi
  rm -rf "$work"
}
trap stop EXIT
trap 'exit 130' INT TERM

build/baton up --config config/local.yaml --ready-file "$work/ready.json" &
up=$!
for ((i = 0; i < 600; i++)); do
  [[ -s "$work/ready.json" ]] && break
  kill -0 "$up" 2>/dev/null || { wait "$up" || status=$?; echo "quickstart: baton up ended with ${status:-0}" >&2; up=; exit 1; }
  sleep 0.1
done
[[ -s "$work/ready.json" ]] || { echo "quickstart: the cluster did not become ready in 60 s" >&2; exit 1; }

field() { python3 -c 'import json,sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$work/ready.json" "$1"; }
grpc="$(field grpc)"
http="$(field http)"

# A text of about 2,000 tokens whose end asks what its middle says.
python3 - >"$work/long.txt" <<'PY'
print("Here is the log of a lighthouse.\n")
for day in range(1, 111):
    print(f"Day {day}: the keeper counted {day * 7 % 50} ships and wrote that the sea was calm.")
print("\nWhat did the keeper count? Answer in one sentence.")
PY

# ask NAME PATH PROMPT_WORDS…: sends it, prints the answer, checks the path and the text.
ask() {
  local name="$1" path="$2"
  shift 2
  echo
  echo "── $name prompt ──"
  build/baton generate --grpc "$grpc" --temperature 0 --max-tokens 48 --json "$@" >"$work/$name.json"
  python3 - "$work/$name.json" "$path" <<'PY'
import json, sys
answer = json.load(open(sys.argv[1]))
itl = answer["itl_ms"]
print(answer["text"].strip())
print(f"path {answer['path']}, {answer['prompt_tokens']} prompt tokens, {answer['completion_tokens']} answer tokens, "
      f"TTFT {answer['ttft_ms']:.0f} ms, ITL p50 {itl['p50']:.1f} ms p99 {itl['p99']:.1f} ms")
if answer["path"] == "disaggregated":
    kv = answer["kv"]
    print(f"KV {kv['bytes'] / 1e6:.1f} MB over {kv['transport']}: compute {kv['compute_ms']:.0f} ms, "
          f"transfer {kv['transfer_ms']:.0f} ms, exposed {kv['exposed_ms']:.1f} ms")
wrong = []
if answer["path"] != sys.argv[2]:
    wrong.append(f"the path is {answer['path']}, not {sys.argv[2]}")
if answer["finish_reason"] not in ("stop", "length") or not answer["text"].strip():
    wrong.append("there is no answer")
if sys.argv[2] == "disaggregated" and answer["kv"]["bytes"] <= 0:
    wrong.append("no KV was pushed")
expected = "Paris" if sys.argv[2] == "colocated" else "ships"
if expected.lower() not in answer["text"].lower():
    wrong.append(f"the answer does not name {expected}")
for line in wrong:
    print("quickstart:", line, file=sys.stderr)
sys.exit(1 if wrong else 0)
PY
}

status=0
ask short colocated --prompt "What is the capital of France? Answer in one word." || status=1
ask long disaggregated --prompt-file "$work/long.txt" || status=1

echo
echo "HTTP     $http/v1/chat/completions"
echo "gRPC     $grpc (baton.v1.Inference)"
echo "metrics  $(python3 -c 'import json,sys; print(" ".join("http://%s/metrics" % r["admin"] for r in json.load(open(sys.argv[1]))["roles"]))' "$work/ready.json")"
if ((once)); then exit "$status"; fi
echo "Ctrl-C stops the cluster."
wait "$up"
