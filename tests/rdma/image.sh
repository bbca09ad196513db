#!/usr/bin/env bash
# Makes the guest of tests/rdma: Debian's kernel and an initial file system with the modules of
# soft-RoCE.  Everything else a guest has is the host's own file system, read-only.
#
#   image.sh FOLDER      leaves FOLDER/vmlinuz and FOLDER/initrd.gz, and skips what is there
#
# Exit 77: a package cannot be had.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
folder="$1"

# With what they need: RDMA over a netdev, a netdev, and the host's files.
modules=(crc32_pclmul crc32_generic virtio_pci virtio_rng 9pnet_virtio 9p dummy ib_uverbs rdma_rxe
         rdma_cm rdma_ucm)

skip() { echo "SKIPPED: $1"; exit 77; }

for tool in busybox cpio depmod modprobe xz apt-get dpkg; do
  command -v "$tool" >/dev/null ||
    skip "$tool is not there (deploy/install.sh tests/rdma/packages.txt)"
done

mkdir -p "$folder"
exec 9>"$folder/lock"
flock 9
stamp="$(cat "$here/image.sh" "$here/init.sh" | sha256sum)"
[[ -s "$folder/initrd.gz" && "$(cat "$folder/stamp" 2>/dev/null)" == "$stamp" ]] && exit 0

# Not the cloud kernel: that one has no rxe.
if ! compgen -G "$folder/linux-image-*.deb" >/dev/null; then
  package="$(apt-cache depends linux-image-amd64 2>/dev/null |
    awk '/Depends: linux-image-[0-9]/ && !seen++ { print $2 }')"
  [[ -n "$package" ]] || skip "apt knows no linux-image-amd64 (apt-get update)"
  (cd "$folder" && apt-get download -q "$package" 2>/dev/null) ||
    skip "$package cannot be downloaded"
fi
rm -rf "$folder/kernel" "$folder/root"
dpkg -x "$folder"/linux-image-*.deb "$folder/kernel"
version="$(basename "$folder"/kernel/lib/modules/*)"
depmod -b "$folder/kernel" "$version"

root="$folder/root"
mkdir -p "$root"/{bin,modules}
cp "$(command -v busybox)" "$root/bin/busybox"
cp "$here/init.sh" "$root/init"
chmod +x "$root/init"
for module in "${modules[@]}"; do
  modprobe -d "$folder/kernel" -S "$version" --show-depends "$module" |
    awk '$1 == "insmod" { print $2 }'
done | awk '!seen[$0]++' | while read -r file; do
  name="$(basename "${file%.xz}")"
  case "$file" in
    *.xz) xz -dc "$file" >"$root/modules/$name" ;;
    *) cp "$file" "$root/modules/$name" ;;
  esac
  echo "$name" >>"$root/modules/order"
done
grep -qx rdma_rxe.ko "$root/modules/order" || skip "kernel $version has no rdma_rxe"
(cd "$root" && find . | cpio -o -H newc --quiet) | gzip -1 >"$folder/initrd.gz"
cp "$folder/kernel/boot/vmlinuz-$version" "$folder/vmlinuz"
rm -rf "$root" "$folder/kernel"
echo "$stamp" >"$folder/stamp"
