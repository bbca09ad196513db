#!/usr/bin/env bash
# Installs, builds and runs the tests.
#
#   tests/run.sh                 everything, as CI does
#   tests/run.sh PART…           some parts of it:
#     unit         unit tests, the tidy test and the golden files, warnings as errors
#     sim          the simulator's scenarios and SIM_SEEDS (2000) seeds
#     mutants-few  some faults put into a copy of the tree: the simulator must see them
#     mutants      all of them; not part of "everything"
#     integration  real processes: the cluster, its clients, Prometheus, failures, and the field
#                  reports that need them
#     faults       real processes: every pair of {fault, role, moment, transport} once
#                  (docs/testing.md)
#     faults-all   the whole fault matrix, 336 cells in FAULTS_SHARDS (1) shards; not part of
#                  "everything".  It goes on where it stopped: green cells of a commit are skipped
#     rdma         the transport over RDMA, in an emulated machine (tests/rdma); installs
#                  QEMU, and skips where that or Debian's kernel cannot be had; not part of
#                  "everything"
#     sanitize     unit and simulation, whole, under ASan+UBSan (clang), and what has threads
#                  under TSan (gcc)
#     fuzz         every fuzz target for FUZZ_SECONDS (5) or FUZZ_RUNS (4000) from FUZZ_SEED (1),
#                  so that CI repeats itself; longer and other seeds are for the night
#     bench-smoke  every benchmark once, small, for its output only
#   BATON_SANITIZE_INTEGRATION=ON adds the integration tests to sanitize, under ASan+UBSan.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cd "$root"
# One compiler cache for every clone of the tree, and for builds that only differ in what they
# make of a warning.
export CCACHE_BASEDIR="$root" CCACHE_NOHASHDIR=1 CCACHE_IGNOREOPTIONS=-Werror
export CCACHE_SLOPPINESS=pch_defines,time_macros

note() { printf '\n== %s (%ss)\n' "$1" "$SECONDS"; }

passed=0
failed=()
skipped=()
# step NAME COMMAND…: runs it, remembers how it ended.
step() {
  local name="$1"
  shift
  note "$name"
  local status=0
  "$@" || status=$?
  if ((status == 0)); then
    passed=$((passed + 1))
  elif ((status == 77)); then
    skipped+=("$name")
  else
    failed+=("$name")
    printf '== %s FAILED\n' "$name"
  fi
}

# configure FOLDER CMAKE_WORDS…
configure() {
  local folder="$1"
  shift
  cmake -S . -B "$folder" -G Ninja -DBATON_WERROR=ON "$@" >"$folder.cmake.log" 2>&1 ||
    { cat "$folder.cmake.log"; return 1; }
  rm -f "$folder.cmake.log"
}

build_release() { configure build -DCMAKE_BUILD_TYPE=Release && cmake --build build; }

ctest_in() {
  local folder="$1"
  shift
  ctest --test-dir "$folder" --output-on-failure --no-tests=error -j 2 "$@"
}

unit() { ctest_in build -L unit -LE integration; }
mutants() { tests/mutants/run.sh; }
mutants_few() { tests/mutants/run.sh --few; }
sim() {
  ctest_in build -L sim && tests/swarm.sh --hours 0 --seeds "${SIM_SEEDS:-2000}" --first 1000
}

# same_logs FOLDER: one seed, one log, whichever compiler and optimisation built the simulator.
same_logs() {
  HASHES=1 FIRST=1 SEEDS=20 build/swarm_test 'random*' | grep '^seed' >"$1/logs.release" &&
    HASHES=1 FIRST=1 SEEDS=20 "$1/swarm_test" 'random*' | grep '^seed' >"$1/logs" &&
    diff "$1/logs.release" "$1/logs" && echo "20 seeds write the same logs as in $1"
}

# configure_sanitized FOLDER CMAKE_WORDS…: sources that no cached object of another build serves.
configure_sanitized() {
  configure "$@" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1 \
    -DBATON_PCH=ON -DBATON_WERROR=OFF
}

# Built once for the sanitizers and the fuzzer.  With the second compiler: what gcc alone
# accepts, or alone warns of, shows here.
build_asan() {
  configure_sanitized build-asan -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_C_COMPILER=clang -DBATON_FUZZ=ON \
    -DBATON_SANITIZE=address,undefined &&
    cmake --build build-asan --target "$@"
}

# Only what has threads: the rest, the simulator above all, has nothing to race.
build_tsan() {
  configure_sanitized build-tsan -DBATON_SANITIZE=thread &&
    cmake --build build-tsan --target threaded
}

# Real processes wait more than they compute.  What they leave of the cores builds the sanitized
# programs meanwhile: nothing of it runs while a test wants to.
build_ahead() {
  command -v setsid chrt >/dev/null || return 0
  setsid chrt --idle 0 "$root/tests/run.sh" --build-sanitized >build/ahead.log 2>&1 &
  ahead=$!
}

stop_building_ahead() {
  [[ -n "$ahead" ]] || return 0
  kill -- "-$ahead" 2>/dev/null || true
  wait "$ahead" 2>/dev/null || true
  ahead=
}
ahead=
trap stop_building_ahead EXIT

export ASAN_OPTIONS=detect_stack_use_after_return=1
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
export TSAN_OPTIONS="halt_on_error=1 suppressions=$root/tests/tsan.supp"

# The golden files run the real model at length: too slow here, and the code they run is also
# that of the unit tests.  Fewer seeds and schedules for the same reason, and none that only
# shows that the checkers stay silent or reads the sources.
sanitize_address() {
  build_asan unit_and_sim || return 1
  SEEDS=36 BATON_K8_SCHEDULES=2 ctest_in build-asan -L 'unit|sim' -LE 'integration|golden' \
    -E 'mutants_|tidy_test' || return 1
  same_logs build-asan || return 1
  [[ "${BATON_SANITIZE_INTEGRATION:-OFF}" == ON ]] || return 0
  build_asan all && ctest_in build-asan -L integration -j 1
}

# Debian's protobuf is not built for the thread sanitizer, and its headers lay messages out
# differently under it: what links it cannot have the label.
sanitize_thread() {
  build_tsan && BATON_K8_SCHEDULES=2 ctest_in build-tsan -L threads
}

fuzz() {
  local source targets=()
  for source in tests/fuzz/fuzz_*.cc; do targets+=("$(basename "$source" .cc)"); done
  build_asan "${targets[@]}" || return 1
  local target status=0
  for target in "${targets[@]}"; do
    local corpus="build-asan/corpus/$target"
    rm -rf "$corpus"
    mkdir -p "$corpus"
    "build-asan/$target" -max_total_time="${FUZZ_SECONDS:-5}" \
      -runs="${FUZZ_RUNS:-4000}" -seed="${FUZZ_SEED:-1}" -artifact_prefix=build-asan/ -timeout=10 -rss_limit_mb=2048 \
      -verbosity=0 -print_final_stats=1 "$corpus" tests/fuzz/seeds >"build-asan/$target.log" 2>&1 ||
      { status=1; tail -40 "build-asan/$target.log"; }
    echo "fuzz: $target: $(grep -o 'number_of_executed_units: .*' "build-asan/$target.log" || echo failed)"
  done
  return "$status"
}

build_failpoints() {
  configure build-failpoints -DCMAKE_BUILD_TYPE=Release -DBATON_FAILPOINTS=ON &&
    cmake --build build-failpoints --target baton
}

integration() {
  build_failpoints || return 1
  # Real clocks on a machine that others use: a test may fail once, not twice.
  ctest_in build -L integration -j 1 --repeat until-pass:2
}

faults() { build_failpoints && ctest_in build -L faults; }

faults_all() {
  build_failpoints && python3 tests/faults/matrix.py --reference || return 1
  local shards="${FAULTS_SHARDS:-1}" status=0 i pids=()
  for ((i = 0; i < shards; ++i)); do
    python3 tests/faults/matrix.py --all --shard "$i/$shards" &
    pids+=($!)
  done
  for i in "${pids[@]}"; do wait "$i" || status=1; done
  python3 tests/faults/matrix.py --table
  return "$status"
}

rdma() {
  deploy/install.sh tests/rdma/packages.txt || return 77
  ctest_in build -L rdma -j 1
}

bench_smoke() { ctest_in build -L bench; }

if [[ "${1:-}" == --build-sanitized ]]; then  # build_ahead's
  # Where the kernel shares the cores out by sessions first, this one's share counts as idle too.
  { echo 19 >/proc/self/autogroup; } 2>/dev/null || true
  build_asan unit_and_sim && build_tsan
  exit
fi

parts=("$@")
((${#parts[@]})) || parts=(unit sim mutants-few integration faults sanitize fuzz bench-smoke)
for part in "${parts[@]}"; do
  case "$part" in
    unit | sim | mutants | mutants-few | integration | faults | faults-all | rdma | sanitize | \
      fuzz | bench-smoke) ;;
    *) echo "tests/run.sh: unknown part '$part'" >&2; exit 2 ;;
  esac
done

step install deploy/install.sh
step model deploy/get_model.sh
step build build_release
if ((${#failed[@]} == 0)); then
  for part in "${parts[@]}"; do
    case "$part" in
      integration | faults)
        [[ -n "$ahead" || " ${parts[*]} " != *" sanitize "* ]] || build_ahead
        step "$part" "$part"
        ;;
      sanitize)
        stop_building_ahead
        step sanitize-address sanitize_address
        step sanitize-thread sanitize_thread
        ;;
      bench-smoke) step bench-smoke bench_smoke ;;
      mutants-few) step mutants-few mutants_few ;;
      faults-all) step faults-all faults_all ;;
      *) step "$part" "$part" ;;
    esac
  done
fi

note "summary"
((${#failed[@]})) && printf 'failed: %s\n' "${failed[*]}"
((${#skipped[@]})) && printf 'skipped: %s\n' "${skipped[*]}"
echo "$passed passed, ${#failed[@]} failed"
((${#failed[@]} == 0))
