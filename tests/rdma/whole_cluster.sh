#!/usr/bin/env bash
# One guest: a cluster of real processes hands requests over by RDMA.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/folders.sh"
python3 "$here/../data/tiny_model.py" "$work/model.gguf"
exec "$here/guest.sh" --limit 570 "$work" bash -c '
  export BATON_BUILD="$0"
  exec python3 tests/rdma/cluster_test.py /tmp/work/model.gguf' "$build"
