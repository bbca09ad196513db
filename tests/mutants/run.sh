#!/usr/bin/env bash
# Puts one small fault at a time into a copy of the tree and demands that the simulator sees it.
#
#   tests/mutants/run.sh [NAME…]   these mutants, or all of them
#   tests/mutants/run.sh --few     a fixed small part, for CI
#   tests/mutants/run.sh --check   only: every patch still applies
#   tests/mutants/run.sh --table   writes the results of all into docs/testing.md
#
# Seeds first, then the scenarios, then the unit test that a patch names (`# unit: NAME`) because
# in the simulator something else guards the same.  MUTANT_SEEDS (600) bounds the seeds of one;
# MUTANT_DIR (build-mutants) holds copy and results; MUTANT_BUILD is put before the compile command.
# A mutant is killed at run time: a copy that does not compile is an error, and so is one that
# nothing tells from the original.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
cd "$root"
few=(decode_block_freed_on_revoke prefill_commit_before_flush router_resume_off_by_one
  writer_quiet_with_writes_out)
dir="$(realpath -m "${MUTANT_DIR:-build-mutants}")"
# Seen from its build folder the copy looks like the tree from its own: one compiler cache.
# A mutant may well leave something unused: its warnings are none.
export CCACHE_BASEDIR="$dir/tree" CCACHE_NOHASHDIR=1 CCACHE_IGNOREOPTIONS=-Werror
seeds="${MUTANT_SEEDS:-600}"

check() {
  local patch status=0
  for patch in tests/mutants/*.patch; do
    git apply --check "$patch" || { echo "mutants: $patch does not apply any more"; status=1; }
  done
  return "$status"
}

# The table of docs/testing.md, from the results.
table() {
  printf '| mutant | the fault | found by | swarm | seeds |\n| --- | --- | --- | --- | --- |\n'
  local patch name found kind seed
  for patch in tests/mutants/*.patch; do
    name="$(basename "$patch" .patch)"
    read -r found kind seed <"$dir/results/$name" || true
    printf '| %s | %s | %s | %s | %s |\n' "$name" "$(sed -n '1s/^# //p' "$patch")" \
      "${found:-nobody}" "${kind:-}" "${seed:-}"
  done
}

write_table() {
  table >"$dir/table"
  sed -i -e '/<!-- mutants begin -->/,/<!-- mutants end -->/{//!d}' \
    -e "/<!-- mutants begin -->/r $dir/table" docs/testing.md
}

# A copy of what is tracked, built once; patches come and go in it.  Only files that differ are
# copied, so that a file which a patch touched counts as new until it was built again.
prepare() {
  mkdir -p "$dir/tree" "$dir/results"
  local file
  while IFS= read -r -d '' file; do
    cmp -s "$file" "$dir/tree/$file" || install -D -m "$(stat -c %a "$file")" "$file" "$dir/tree/$file"
  done < <(git ls-files -z -- '*.cc' '*.h' '*.txt' '*.cmake' '*.sh' '*.py' '*.patch' proto '*.inc' '*.cu')
  cmake -S "$dir/tree" -B "$dir/tree/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DBATON_SERVER=OFF \
    >"$dir/cmake.log" 2>&1 || { cat "$dir/cmake.log"; return 1; }
}

build() { ${MUTANT_BUILD:-} ninja -C "$dir/tree/build" "$@" >"$dir/build.log" 2>&1; }

# The first checker that speaks in the scenarios, for what needs a moment that seeds seldom meet.
scenarios() {
  local program found
  for program in scenarios_test field_test; do
    found="$("$dir/tree/build/$program" 2>&1 |
      grep -m1 -oE '^ +(K[0-9]+|liveness|metrics|fairness|refused):' | tr -d ' :' || true)"
    if [[ -n "$found" ]]; then
      echo "$found $program -"
      return
    fi
  done
}

# The unit test that the patch names, if it fails.
unit_test() {
  local name
  name="$(sed -n 's/^# unit: //p' "$1")"
  [[ -n "$name" ]] || return 0
  build "$name" || return 1
  "$dir/tree/build/$name" >"$dir/unit.log" 2>&1 || echo "unit $name -"
}

# hunt NAME: applies, builds, hunts, reverts.
hunt() {
  local name="$1" patch="$root/tests/mutants/$1.patch" built=0 found=""
  (cd "$dir/tree" && patch -p1 -s --no-backup-if-mismatch <"$patch") || return 1
  build mutant_hunt || built=1
  if ((!built)); then
    found="$("$dir/tree/build/mutant_hunt" "$seeds")"
    [[ -n "$found" ]] || { build scenarios_test field_test && found="$(scenarios)"; } || built=1
    [[ -n "$found" ]] || found="$(unit_test "$patch")" || built=1
  fi
  (cd "$dir/tree" && patch -p1 -s -R --no-backup-if-mismatch <"$patch")
  if ((built)); then
    tail -20 "$dir/build.log"
    echo "mutants: $name does not compile"
    return 1
  fi
  echo "$found" >"$dir/results/$name"
  printf '%-40s %s\n' "$name" "${found:-SURVIVES}"
  [[ -n "$found" ]]
}

case "${1:-}" in
  --check) check; exit ;;
  --table) write_table; exit ;;
  --few) names=("${few[@]}") ;;
  "") names=(); for patch in tests/mutants/*.patch; do names+=("$(basename "$patch" .patch)"); done ;;
  *) names=("$@") ;;
esac
check
prepare
failed=()
for name in "${names[@]}"; do hunt "$name" || failed+=("$name"); done
echo "mutants: ${#names[@]} tried, ${#failed[@]} not killed ${failed[*]:-}"
((${#failed[@]} == 0))
