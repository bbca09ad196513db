#!/usr/bin/env bash
# Installs, builds and runs the tests.
#
#   tests/run.sh                 everything, as CI does
#   tests/run.sh PART…           some parts of it:
#     unit         unit tests, the tidy test and the golden files, warnings as errors
#     sim          the simulator's scenarios and seeds
#     integration  real processes: the cluster, its clients, Prometheus, failures
#     sanitize     the simulation, its swarms and base under ASan+UBSan
#     sanitize-all unit and simulation, whole, under ASan+UBSan and under TSan; not part of
#                  "everything": it builds the tree twice more
#     fuzz         every fuzz target for FUZZ_SECONDS (5) or FUZZ_RUNS (4000) from FUZZ_SEED (1),
#                  so that CI repeats itself; longer and other seeds are for the night
#     bench-smoke  every benchmark once, small, for its output only
#   BATON_SANITIZE_INTEGRATION=ON adds the integration tests to sanitize-all.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cd "$root"
# One compiler cache for every clone of the tree.
export CCACHE_BASEDIR="$root" CCACHE_NOHASHDIR=1

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
sim() { ctest_in build -L sim; }

# sanitize_build NAME SANITIZERS [TARGET…]
sanitize_build() {
  local name="$1" sanitizers="$2"
  shift 2
  configure "build-$name" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1 \
    -DBATON_SANITIZE="$sanitizers" -DBATON_SERVER="${BATON_SANITIZE_INTEGRATION:-OFF}" \
    -DBATON_WERROR=OFF &&
    cmake --build "build-$name" --target "${@:-all}"
}

export ASAN_OPTIONS=detect_stack_use_after_return=1
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
export TSAN_OPTIONS="halt_on_error=1 suppressions=$root/tests/tsan.supp"

sanitize() {
  local targets=(base_test scenarios_test worker_pair_test swarm_test kv_swarm_test)
  sanitize_build asan address,undefined "${targets[@]}" || return 1
  local target
  for target in "${targets[@]}"; do
    SEEDS=100 "build-asan/$target" || return 1
  done
}

sanitize_all() {
  sanitize_build "$1" "$2" || return 1
  local exclude=(-LE 'integration|golden')
  [[ "${BATON_SANITIZE_INTEGRATION:-OFF}" == ON ]] && exclude=()
  ctest_in "build-$1" -L 'unit|sim' "${exclude[@]}"
}

fuzz() {
  configure build-fuzz -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1 \
    -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_C_COMPILER=clang -DBATON_FUZZ=ON \
    -DBATON_SANITIZE=address,undefined -DBATON_WERROR=OFF || return 1
  local source targets=()
  for source in tests/fuzz/fuzz_*.cc; do targets+=("$(basename "$source" .cc)"); done
  cmake --build build-fuzz --target "${targets[@]}" || return 1
  local target status=0
  for target in "${targets[@]}"; do
    local corpus="build-fuzz/corpus/$target"
    rm -rf "$corpus"
    mkdir -p "$corpus"
    "build-fuzz/$target" -max_total_time="${FUZZ_SECONDS:-5}" \
      -runs="${FUZZ_RUNS:-4000}" -seed="${FUZZ_SEED:-1}" -artifact_prefix=build-fuzz/ -timeout=10 -rss_limit_mb=2048 \
      -verbosity=0 -print_final_stats=1 "$corpus" tests/fuzz/seeds >"build-fuzz/$target.log" 2>&1 ||
      { status=1; tail -40 "build-fuzz/$target.log"; }
    echo "fuzz: $target: $(grep -o 'number_of_executed_units: .*' "build-fuzz/$target.log" || echo failed)"
  done
  return "$status"
}

integration() {
  configure build-failpoints -DCMAKE_BUILD_TYPE=Release -DBATON_FAILPOINTS=ON &&
    cmake --build build-failpoints --target baton || return 1
  # Real clocks on a machine that others use: a test may fail once, not twice.
  ctest_in build -L integration -j 1 --repeat until-pass:2
}

bench_smoke() { ctest_in build -L bench; }

parts=("$@")
((${#parts[@]})) || parts=(unit sim integration sanitize fuzz bench-smoke)
for part in "${parts[@]}"; do
  case "$part" in
    unit | sim | integration | sanitize | sanitize-all | fuzz | bench-smoke) ;;
    *) echo "tests/run.sh: unknown part '$part'" >&2; exit 2 ;;
  esac
done

step install deploy/install.sh
step model deploy/get_model.sh
step build build_release
if ((${#failed[@]} == 0)); then
  for part in "${parts[@]}"; do
    case "$part" in
      sanitize-all)
        step sanitize-address sanitize_all asan address,undefined
        step sanitize-thread sanitize_all tsan thread
        ;;
      bench-smoke) step bench-smoke bench_smoke ;;
      *) step "$part" "$part" ;;
    esac
  done
fi

note "summary"
((${#failed[@]})) && printf 'failed: %s\n' "${failed[*]}"
((${#skipped[@]})) && printf 'skipped: %s\n' "${skipped[*]}"
echo "$passed passed, ${#failed[@]} failed"
((${#failed[@]} == 0))
