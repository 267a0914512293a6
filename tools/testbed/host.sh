#!/bin/sh
# PID 1 of a host of the testbed: its own view of the file system, then sshd.
#
# host.sh NAME FOLDER CHECKOUT TOPS WIDENED...: what the host writes below a top folder (etc, opt,
# ...) lands in FOLDER/TOP and nowhere else; the checkout is not there for it; folders on the way
# to Python, WIDENED, may be walked by every user, in the host's view only.
set -eu
name=$1 folder=$2 checkout=$3 tops=$4
shift 4
hostname "$name"
for top in $tops; do
    mount -t overlay -o "lowerdir=/$top,upperdir=$folder/$top,workdir=$folder/.$top" "$name" "/$top"
done
for path in "$@"; do chmod o+x "$path"; done
mount -t tmpfs -o mode=755 "$name" /run
mkdir /run/sshd /run/testbed
cp "$folder"/ssh/* /run/testbed/
mount -t tmpfs "$name" "$checkout"
mount --bind "$folder/tmp" /tmp
cd /
/usr/sbin/sshd -D -e -f /run/testbed/sshd_config &
while :; do wait; sleep 3600; done # orphans of the host are this shell's to collect
