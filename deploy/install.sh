#!/usr/bin/env bash
# Installs the Debian packages of a list (deploy/packages.txt) that are missing; says what it
# skips.
#
#   deploy/install.sh [LIST]
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"

list="${1:-$here/packages.txt}"
missing=()
while read -r package; do
  [[ -z "$package" || "$package" == \#* ]] && continue
  dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed ||
    missing+=("$package")
done <"$list"

if ((${#missing[@]} == 0)); then
  echo "install: all packages are there, skipped"
  exit 0
fi
sudo=()
if ((EUID != 0)); then
  command -v sudo >/dev/null || { echo "install: needs root for: ${missing[*]}" >&2; exit 1; }
  sudo=(sudo)
fi
echo "install: ${missing[*]}"
"${sudo[@]}" apt-get update -qq
DEBIAN_FRONTEND=noninteractive "${sudo[@]}" apt-get install -y -qq --no-install-recommends \
  "${missing[@]}" >/dev/null
