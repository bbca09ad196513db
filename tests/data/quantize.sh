#!/usr/bin/env bash
# Makes the default model in every other weight type, under models/ (git-ignored, about 1.9 GB
# for all): models/smollm2-135m-instruct-TYPE.gguf.
#
#   tests/data/quantize.sh [TYPE…]     f32 f16 bf16 q8_0 q4_0 q5_0 q5_1 q4_k_m q5_k_m q6_k
#
# Uses llama.cpp's own quantizer: $LLAMA_BIN/llama-quantize if LLAMA_BIN is set, else one that
# is built once, under ${TMPDIR:-/tmp}/baton-quantizer, from the source in the PyPI package
# llama-cpp-python (a few minutes).  Files that are there are left alone.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
all=(f32 f16 bf16 q8_0 q4_0 q5_0 q5_1 q4_k_m q5_k_m q6_k)
version=0.3.36

source_file="$root/models/smollm2-135m-instruct-q4_1.gguf"
[[ -s "$source_file" ]] || "$root/deploy/get_model.sh" >&2

build_quantizer() {
  local work="${TMPDIR:-/tmp}/baton-quantizer"
  quantize="$work/build/bin/llama-quantize"
  [[ -x "$quantize" ]] && return
  echo "quantize: building llama-quantize in $work" >&2
  mkdir -p "$work"
  python3 -m pip download --quiet --disable-pip-version-check --no-deps \
    --no-binary llama-cpp-python --dest "$work" "llama-cpp-python==$version" >&2
  tar -xzf "$work/llama_cpp_python-$version.tar.gz" -C "$work"
  cmake -S "$work/llama_cpp_python-$version/vendor/llama.cpp" -B "$work/build" -G Ninja \
    -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF -DLLAMA_BUILD_TOOLS=ON \
    -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF \
    -DLLAMA_OPENSSL=OFF >"$work/cmake.log"
  cmake --build "$work/build" --parallel "$(nproc)" --target llama-quantize >"$work/build.log"
}

quantize="${LLAMA_BIN:+$LLAMA_BIN/llama-quantize}"
for type in "${@:-${all[@]}}"; do
  target="$root/models/smollm2-135m-instruct-$type.gguf"
  [[ " ${all[*]} " == *" $type "* ]] || { echo "quantize: $type is none of: ${all[*]}" >&2; exit 2; }
  if [[ -s "$target" ]]; then
    echo "quantize: $target is there, skipped"
    continue
  fi
  [[ -n "$quantize" ]] || build_quantizer
  log="$(mktemp)"
  "$quantize" --allow-requantize "$source_file" "$target.part" "${type^^}" >"$log" 2>&1 ||
    { tail -20 "$log" >&2; rm -f "$target.part" "$log"; exit 1; }
  rm -f "$log"
  mv "$target.part" "$target"
  echo "quantize: $target"
done
