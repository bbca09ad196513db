#!/bin/busybox sh
# The first process of a guest: loads the modules, takes the host's file system for its root, and
# goes on with guest_main.sh of the tree that the kernel's command line names.
b=/bin/busybox
$b mkdir -p /proc /sys /dev /host
$b mount -t proc proc /proc
$b mount -t sysfs sysfs /sys
$b mount -t devtmpfs devtmpfs /dev
while read -r module; do
  $b insmod "/modules/$module" || echo "guest: module $module cannot be loaded"
done </modules/order
$b mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144,ro,cache=loose host /host || {
  echo "guest: the host's files cannot be mounted"
  $b poweroff -f
}
tree="$($b sed -n 's/.*baton\.tree=\([^ ]*\).*/\1/p' /proc/cmdline)"
for folder in proc sys dev; do $b mount -o move "/$folder" "/host/$folder"; done
exec $b chroot /host /bin/sh "$tree/tests/rdma/guest_main.sh" "$tree"
