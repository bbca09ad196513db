#!/usr/bin/env bash
# Runs the simulator's seeds for hours, on every core, and stops at the first that fails.
#
#   tests/swarm.sh [--hours H] [--seeds N] [--first SEED] [--jobs J] [--keep-going]
#     --hours       how long; default 8, 0: no limit
#     --seeds       or until so many seeds are through
#     --first       the first seed; default: drawn from the time, and printed
#     --keep-going  a failing seed is shrunk and reported, and the next ones follow
# A failing seed is printed with the command that replays it, and its shrunk plan.
# BATON_BUILD names the build folder (build).
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cd "$root"
build="${BATON_BUILD:-build}"
hours=8 seeds=0 first="$(date +%s)000000" jobs="$(nproc)" keep_going=0
while (($#)); do
  case "$1" in
    --hours) hours="$2"; shift 2 ;;
    --seeds) seeds="$2"; shift 2 ;;
    --first) first="$2"; shift 2 ;;
    --jobs) jobs="$2"; shift 2 ;;
    --keep-going) keep_going=1; shift ;;
    *) sed -n '2,10p' "$0" >&2; exit 2 ;;
  esac
done
[[ -x "$build/swarm_test" ]] || { echo "tests/swarm.sh: build swarm_test first" >&2; exit 2; }

chunk=500
logs="$(mktemp -d)"
trap 'rm -rf "$logs"' EXIT
end=$((SECONDS + $(awk -v h="$hours" 'BEGIN { printf "%d", h * 3600 }')))
echo "swarm: from seed $first, $jobs at a time"

# run_chunk FIRST: its seeds one after another; a failure leaves a file in $logs.
run_chunk() {
  local log="$logs/$1"
  if FIRST="$1" SEEDS="$chunk" "$build/swarm_test" 'random*' >"$log" 2>&1; then
    rm -f "$log"
  else
    mv "$log" "$log.failed"
  fi
}

report() {
  local log seed
  for log in "$logs"/*.failed; do
    [[ -e "$log" ]] || return 0
    cat "$log"
    for seed in $(grep -o 'SEED=[0-9]*' "$log" | sort -u | sed 's/SEED=//' | head -3); do
      SEED="$seed" SHRINK=1 "$build/swarm_test" 'random*' || true
    done
    rm -f "$log"
    failed=$((failed + 1))
  done
}

done_seeds=0 next="$first" failed=0
while ((hours == 0 || SECONDS < end)) && ((seeds == 0 || done_seeds < seeds)); do
  for ((j = 0; j < jobs; ++j)); do
    run_chunk "$next" &
    next=$((next + chunk))
    done_seeds=$((done_seeds + chunk))
  done
  wait
  report
  ((failed == 0 || keep_going)) || break
done
echo "swarm: $done_seeds seeds from $first, $failed groups of $chunk failed"
((failed == 0))
