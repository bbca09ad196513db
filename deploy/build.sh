#!/usr/bin/env bash
# Builds build/baton (Release).  Extra words go to cmake, for example -DBATON_WERROR=OFF for
# a compiler newer than Debian 12's.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cmake -S "$root" -B "$root/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DBATON_WERROR=ON \
  "$@" >/dev/null
cmake --build "$root/build" --target baton
