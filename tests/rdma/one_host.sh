#!/usr/bin/env bash
# One guest: what RDMA itself promises, and the transport's contract over it.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/folders.sh"
status=0
"$here/guest.sh" --limit 570 "$work" bash -c '
  status=0
  "$0/rdma_test" || status=1
  "$0/ucx_contract_test" "[rdma]" || status=1
  exit $status' "$build" || status=$?
if grep -qs "invalid configuration" "$work/output"; then
  echo "UCX does not know one of the settings that Baton makes"
  status=1
fi
exit "$status"
