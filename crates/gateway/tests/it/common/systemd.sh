# systemd as the first process of a container that shares nothing with this system but its programs, a network namespace, and what
# is in FOLDER. In a mount namespace of its own:
#
#   sh -c THIS sh FOLDER NAME
#
# FOLDER/root: what was installed; /usr/local of it is the container's. FOLDER/etc: over this system's /etc. FOLDER/units: units
# beside those that were installed, and drop-ins. Inside, FOLDER is /run/test. NAME is that of its cgroup, which stays. FOLDER/pid
# will hold its process's number.
set -eu
if [ -n "${2:-}" ]; then
	# What it starts is below a cgroup of its own: from inside it is the root.
	mount -t cgroup2 cgroup /mnt
	mkdir "/mnt/$2"
	echo $$ >"/mnt/$2/cgroup.procs"
	umount /mnt
	exec unshare --pid --mount --cgroup --uts --ipc --fork --kill-child sh -c "$THIS" sh "$1"
fi

read -r pid _ </proc/self/stat
mount --make-rprivate /
mount -t proc proc /proc
# It sets some for the whole system, unless they are not to be written.
mount --bind /proc/sys /proc/sys
mount --bind /proc/sys/net /proc/sys/net
mount -o remount,bind,ro /proc/sys

mount -t tmpfs dev /mnt
for node in null zero full random urandom tty ptmx; do
	: >"/mnt/$node"
	mount --bind "/dev/$node" "/mnt/$node"
done
mkdir /mnt/shm /mnt/pts
ln -s /proc/self/fd /mnt/fd
# What it has to say.
ln -s /run/test/kmsg /mnt/kmsg
mount -n --move /mnt /dev

mount -t tmpfs run /mnt
mkdir /mnt/test /mnt/etc /mnt/work /mnt/units /mnt/netns
mount --bind "$1" /mnt/test
if [ -d /run/netns ]; then mount --rbind /run/netns /mnt/netns; fi
mount -n --move /mnt /run
: >/run/test/kmsg
mount -t overlay -o lowerdir=/etc,upperdir=/run/etc,workdir=/run/work etc /etc
cp -R /run/test/etc/. /etc
mount --bind /run/test/root/usr/local /usr/local
for folder in /tmp /var/tmp /var/lib; do mount -t tmpfs tmp "$folder"; done
mount -t cgroup2 cgroup /sys/fs/cgroup
mount -t bpf bpf /sys/fs/bpf
# Nothing of this system's is started.
for target in sysinit basic shutdown network-online multi-user final umount; do
	printf '[Unit]\nDefaultDependencies=no\n' >"/run/units/$target.target"
done
echo "$pid" >/run/test/pid
exec env -i container=ringside PATH="$PATH" SYSTEMD_LOG_TARGET=kmsg SYSTEMD_LOG_LEVEL=info \
	SYSTEMD_UNIT_PATH=/run/test/units:/usr/local/lib/systemd/system:/run/units \
	/lib/systemd/systemd --system --unit=multi-user.target
