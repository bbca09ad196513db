# Sourced by the tests of this folder: `here`, `build` (BATON_BUILD or build/) and the test's own
# `work` folder, which is made.
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
build="$(cd "${BATON_BUILD:-$here/../../build}" && pwd)"
work="$build/rdma_guest/$(basename "$0" .sh)"
mkdir -p "$work"
