#!/bin/sh
# Inside a guest, after init.sh: makes the RDMA device and runs the job.
#
#   guest_main.sh TREE
#
# The host's root is read-only; /tmp, /run and /dev/shm are the guest's own, /tmp/work is the
# host's folder of this guest (guest.sh).  The device is rxe0, at 192.0.2.1, on an interface without
# a wire: what two processes of the guest say to each other by RDMA.
tree="$1"
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp LC_ALL=C PYTHONDONTWRITEBYTECODE=1
plan9=trans=virtio,version=9p2000.L,msize=262144

for folder in /tmp /run; do mount -t tmpfs tmpfs "$folder"; done
mkdir -p /dev/shm /tmp/work
ln -s /proc/self/fd /dev/fd
mount -t tmpfs tmpfs /dev/shm
mount -t 9p -o "$plan9" work /tmp/work
case "$tree" in /tmp/* | /run/*)  # hidden just now
  mkdir -p "$tree"
  mount -t 9p -o "$plan9,ro,cache=loose" tree "$tree"
  ;;
esac

network() {
  ip link set lo up
  ip link show dummy0 >/dev/null 2>&1 || ip link add dummy0 type dummy
  ip link set dummy0 mtu 4200
  ip addr add 192.0.2.1/24 dev dummy0
  ip link set dummy0 up
  rdma link add rxe0 type rxe netdev dummy0
  tries=50
  until grep -q ACTIVE /sys/class/infiniband/rxe0/ports/1/state &&
    grep -qi "ffff:c000:0201" /sys/class/infiniband/rxe0/ports/1/gids/*; do
    tries=$((tries - 1))
    [ "$tries" -gt 0 ] || { echo "guest: rxe0 does not come up"; return 1; }
    sleep 0.1
  done
}

ulimit -l unlimited
ulimit -c 0
cd "$tree" || exit 1
if network >/tmp/work/output 2>&1; then
  echo "guest: up after $(cut -d' ' -f1 /proc/uptime) s" >>/tmp/work/console.txt
  bash /tmp/work/job >>/tmp/work/output 2>&1
  echo $? >/tmp/work/status
else
  echo 1 >/tmp/work/status
fi
sync
busybox poweroff -f
