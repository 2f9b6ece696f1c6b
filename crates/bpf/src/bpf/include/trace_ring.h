/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * When probes are put in the ring of a TAP device, by the stack or by XDP, and when who reads the device begins to take one that XDP has put there: of
 * the others a tracepoint tells. Included by trace.bpf.c, whose programs these are.
 */
#ifndef RINGSIDE_TRACE_RING_H
#define RINGSIDE_TRACE_RING_H

#include "trace.h"
#include "tun.h"

struct xdp_frame {
	void *data;
	__u32 len;
} __attribute__((preserve_access_index));

/* linux/if_tun.h: what lies in the ring is an XDP frame, and no socket buffer */
#define TUN_XDP_FLAG 1ull
/* linux/netdevice.h: XDP puts what one poll of a driver takes there, so many at the most, before it tells of any */
#define NAPI_POLL_WEIGHT 64

/* Rings of sockets, and up to where they have been looked at. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, __u64);
	__type(value, __u32);
} rings SEC(".maps");

/* Whether a socket without a family is a TAP device's. That of a macvtap device has a ring, too, and tells nobody of it. */
static __always_inline int has_ring(const struct sock *sk)
{
	char name[4] = {};

	if (!bpf_core_field_exists(((struct tun_file *)0)->tx_ring))
		return 0;
	bpf_probe_read_kernel_str(name, sizeof(name), sk->__sk_common.skc_prot->name);
	return name[0] == 't' && name[1] == 'u' && name[2] == 'n';
}

/*
 * Tells of the probe in a place of a ring, if there is a wanted one. A function of its own, which the verifier walks once.
 */
__noinline int tell_slot(__u64 slot, __u64 device, __u64 now, __u32 point)
{
	struct here *here = this_cpu();
	struct event *event;
	struct probe probe;
	__u64 frame, end;
	struct id id;
	__u32 pid;

	if (!here || !slot)
		return 0;
	if (slot & TUN_XDP_FLAG) {
		struct xdp_frame *xdp = (void *)(slot & ~TUN_XDP_FLAG);

		frame = (__u64)BPF_CORE_READ(xdp, data);
		end = frame + BPF_CORE_READ(xdp, len);
	} else {
		struct sk_buff *skb = (void *)slot;

		frame = (__u64)BPF_CORE_READ(skb, data);
		end = (__u64)BPF_CORE_READ(skb, head) + BPF_CORE_READ(skb, tail);
	}
	if (!find_probe(frame, end, &probe))
		return 0;
	id = id_of(&probe);
	pid = bpf_get_current_pid_tgid();
	if (point == POINT_RING) {
		here->is_waking = 1;
		here->waking = id;
	} else {
		/* Who was woken up while it ran is not switched to. */
		bpf_map_delete_elem(&awaited, &pid);
	}
	event = begin(here, point, &id, now);
	if (!event)
		return 0;
	event->ifindex = (__u32)device;
	event->namespace = device >> 32;
	if (point != POINT_RING)
		event->extra[0] = pid;
	else if (slot & TUN_XDP_FLAG)
		/* Of a socket buffer those have told who had it before. */
		received(here, event);
	tell(event);
	return 0;
}

static __always_inline __u64 device_of(const struct net_device *dev)
{
	return (__u64)BPF_CORE_READ(dev, nd_net.net, ns.inum) << 32 | (__u32)BPF_CORE_READ(dev, ifindex);
}

/* A TAP device's socket tells of what was put in its ring. The kernel has done so by now, and its reader may have taken it: what it leaves in its place
 * is looked at all the same. */
static __always_inline void put_in_ring(const struct sock *sk, __u64 now)
{
	__u64 sock = (__u64)sk, device, slot;
	struct tun_file *file = (void *)sock;
	__u32 producer, size, since;
	struct ptr_ring *ring;
	void **places;
	__u32 *seen;

	if (!has_ring(sk))
		return;
	ring = (void *)(sock + bpf_core_field_offset(struct tun_file, tx_ring));
	device = device_of(BPF_CORE_READ(file, tun, dev));
	size = BPF_CORE_READ(ring, size);
	producer = BPF_CORE_READ(ring, producer);
	places = BPF_CORE_READ(ring, queue);
	if (producer >= size)
		return;
	/* The first time all that lies there is new. */
	seen = bpf_map_lookup_elem(&rings, &sock);
	since = seen ? *seen : BPF_CORE_READ(ring, consumer_head);
	if (seen)
		*seen = producer;
	else
		bpf_map_update_elem(&rings, &sock, &producer, BPF_ANY);
	for (__u32 at = 0; at < NAPI_POLL_WEIGHT; at++) {
		if (producer == since)
			break;
		producer = (producer ? producer : size) - 1;
		if (!bpf_probe_read_kernel(&slot, sizeof(slot), places + producer))
			tell_slot(slot, device, now, POINT_RING);
	}
}

/* --- who reads the device ------------------------------------------------------------------------------------------ */

struct file {
	void *private_data;
} __attribute__((preserve_access_index));

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
} __attribute__((preserve_access_index));

struct files_struct {
	struct fdtable *fdt;
} __attribute__((preserve_access_index));

struct task_struct___files {
	struct files_struct *files;
} __attribute__((preserve_access_index));

#ifdef __TARGET_ARCH_x86
#define SYS_READ 0
#define SYS_READV 19
struct pt_regs {
	unsigned long di;
} __attribute__((preserve_access_index));
#define FIRST_ARGUMENT(regs) BPF_CORE_READ(regs, di)
#else
/* include/uapi/asm-generic/unistd.h */
#define SYS_READ 63
#define SYS_READV 65
struct pt_regs {
	unsigned long regs[31];
} __attribute__((preserve_access_index));
#define FIRST_ARGUMENT(regs) BPF_CORE_READ(regs, regs[0])
#endif

/*
 * QEMU reads a packet of its TAP device. It is the only one that does, so it takes what is first in the ring now. One that is put into an empty ring at
 * this very moment is missed.
 */
SEC("tp_btf/sys_enter")
int BPF_PROG(watch_read, struct pt_regs *regs, long call)
{
	__u64 now = bpf_ktime_get_ns();
	struct task_struct___files *task;
	struct ptr_ring *ring;
	struct fdtable *table;
	struct file **files, *file;
	__u64 sock, slot;
	__u32 head, fd;
	void **places;

	if (call != SYS_READ && call != SYS_READV)
		return 0;
	if (!bpf_core_field_exists(((struct tun_file *)0)->tx_ring))
		return 0;
	fd = FIRST_ARGUMENT(regs);
	task = (void *)bpf_get_current_task();
	table = BPF_CORE_READ(task, files, fdt);
	if (fd >= BPF_CORE_READ(table, max_fds))
		return 0;
	files = BPF_CORE_READ(table, fd);
	if (bpf_probe_read_kernel(&file, sizeof(file), files + fd))
		return 0;
	sock = (__u64)BPF_CORE_READ(file, private_data);
	if (!bpf_map_lookup_elem(&rings, &sock))
		return 0;
	ring = (void *)(sock + bpf_core_field_offset(struct tun_file, tx_ring));
	head = BPF_CORE_READ(ring, consumer_head);
	places = BPF_CORE_READ(ring, queue);
	if (head >= (__u32)BPF_CORE_READ(ring, size) || bpf_probe_read_kernel(&slot, sizeof(slot), places + head))
		return 0;
	if (slot & TUN_XDP_FLAG)
		tell_slot(slot, 0, now, POINT_COPY);
	return 0;
}

#endif
