#!/usr/bin/env bash
# Builds build/baton (Release).  Extra words go to cmake, for example -DBATON_WERROR=ON.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cmake -S "$root" -B "$root/build" -G Ninja -DCMAKE_BUILD_TYPE=Release "$@" >/dev/null
cmake --build "$root/build" --target baton
