#!/usr/bin/env bash
# Runs a command as root in a virtual machine with an RDMA device (soft-RoCE, emulated in full:
# nothing of the host's kernel is asked but to run QEMU).
#
#   guest.sh [--limit SECONDS] FOLDER COMMAND…
#
# The command runs in the tree's root; FOLDER is /tmp/work there.  Its output is printed at the
# end; the exit status is the command's, 124 if the limit (120 s) came first, 77 where there is no
# QEMU or no kernel.  FOLDER/pid holds QEMU's process id: killing it is a power failure.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
tree="$(cd "$here/../.." && pwd)"

limit=120
if [[ "$1" == --limit ]]; then
  limit="$2"
  shift 2
fi
mkdir -p "$1"
work="$(cd "$1" && pwd)"
shift

command -v qemu-system-x86_64 >/dev/null ||
  { echo "SKIPPED: no qemu-system-x86_64 (deploy/install.sh tests/rdma/packages.txt)"; exit 77; }
image="${BATON_BUILD:-$tree/build}/rdma_guest"
"$here/image.sh" "$image"

rm -f "$work"/{status,output,console.txt,pid}
printf '%q ' "$@" >"$work/job"
options=security_model=none,multidevs=remap
status=0
timeout -k 5 "$limit" qemu-system-x86_64 -pidfile "$work/pid" \
  -accel tcg,thread=multi -cpu max -smp 2 -m 2048 -nodefaults -no-reboot -display none \
  -serial stdio -device virtio-rng-pci \
  -kernel "$image/vmlinuz" -initrd "$image/initrd.gz" \
  -append "console=ttyS0 quiet loglevel=4 panic=-1 mitigations=off net.ifnames=0 baton.tree=$tree" \
  -virtfs "local,path=/,mount_tag=host,readonly=on,$options" \
  -virtfs "local,path=$tree,mount_tag=tree,readonly=on,$options" \
  -virtfs "local,path=$work,mount_tag=work,$options" </dev/null >>"$work/console.txt" 2>&1 || status=$?
[[ -f "$work/output" ]] && cat "$work/output"
if [[ -f "$work/status" ]]; then exit "$(cat "$work/status")"; fi
echo "guest.sh: the guest ended without a result (QEMU: $status); its console:"
tail -n 20 "$work/console.txt"
exit 124
