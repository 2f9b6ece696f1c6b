// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Counts what AF_XDP sockets get of an interface's packets, by class, receive queue and CPU: they never come to the stack, where
 * landing.bpf.c counts.
 *
 * By the tracepoint that is hit when a socket has got one. It tells the socket, and not the packet: that is what lies last in the socket's
 * RX ring then. With native XDP its reader does not see it before; with generic XDP it does, and who is quick could have changed it.
 * https://elixir.bootlin.com/linux/v6.18/C/ident/__xdp_do_redirect_xsk
 */
#include "landing.h"
#include "one_device.h"

#include <bpf/bpf_endian.h>

/* As in landing.rs. */
#define NATIVE 0
#define GENERIC 1

#define UDP 17

/* Of generic XDP: the interface's program. */
struct net_device___generic {
	void *xdp_prog;
} __attribute__((preserve_access_index));

/* linux/if_xdp.h */
struct xdp_desc {
	__u64 addr;
	__u32 len;
	__u32 options;
};

/* Where the offset is in an address of a UMEM without fixed places for frames: XSK_UNALIGNED_BUF_OFFSET_SHIFT. */
#define OFFSET_SHIFT 48

struct xdp_rxtx_ring {
	struct xdp_desc desc[0];
} __attribute__((preserve_access_index));

struct xsk_queue {
	__u32 ring_mask;
	__u32 cached_prod;
	struct xdp_ring *ring;
} __attribute__((preserve_access_index));

struct xsk_buff_pool {
	_Bool unaligned;
	void *addrs;
} __attribute__((preserve_access_index));

struct xdp_sock {
	struct xsk_queue *rx;
	struct xsk_buff_pool *pool;
	__u16 queue_id;
} __attribute__((preserve_access_index));

/* Where the last frame of a socket is, and where it ends. What is read may be anything: only the helper follows addresses. */
static __always_inline __u64 last_frame(const struct xdp_sock *socket, __u64 *end)
{
	struct xsk_queue *rx = BPF_CORE_READ(socket, rx);
	struct xsk_buff_pool *pool = BPF_CORE_READ(socket, pool);
	__u32 last = (BPF_CORE_READ(rx, cached_prod) - 1) & BPF_CORE_READ(rx, ring_mask);
	__u64 all = (__u64)BPF_CORE_READ(rx, ring) + bpf_core_field_offset(((struct xdp_rxtx_ring *)0)->desc);
	struct xdp_desc desc;
	__u64 at;

	if (bpf_probe_read_kernel(&desc, sizeof(desc), (void *)(all + last * sizeof(desc))))
		return 0;
	at = desc.addr;
	if (BPF_CORE_READ(pool, unaligned))
		at = (at & ((1ull << OFFSET_SHIFT) - 1)) + (at >> OFFSET_SHIFT);
	at += (__u64)BPF_CORE_READ(pool, addrs);
	*end = at + desc.len;
	return at;
}

SEC("tp_btf/xdp_redirect")
int BPF_PROG(ringside_landx, const struct net_device *dev, const void *program, const void *target, int err, __u32 map_type)
{
	const struct xdp_sock *socket = target;
	/* The type, and an IPv4 header's first part. */
	__u8 head[22] = {};
	__s32 priority = NO_TAG;
	__be16 port = 0;
	__u64 at, end;
	__u16 type;

	if (map_type != BPF_MAP_TYPE_XSKMAP || !is_it(dev))
		return 0;
	at = last_frame(socket, &end);
	if (at) {
		at += 12;
		bpf_probe_read_kernel(head, sizeof(head), (void *)at);
		type = head[0] << 8 | head[1];
		/* One tag, which the stack would have taken out. */
		if (type == 0x8100 || type == 0x88a8) {
			priority = head[2] >> 5;
			at += 4;
			bpf_probe_read_kernel(head, sizeof(head), (void *)at);
			type = head[0] << 8 | head[1];
		}
		/* Of a fragment only the first has the ports. */
		if (type == 0x0800 && head[2 + 9] == UDP && !((head[2 + 6] & 0x1f) | head[2 + 7]))
			at += 2 + (head[2] & 15) * 4 + 2;
		else if (type == 0x86dd && head[2 + 6] == UDP)
			at += 2 + 40 + 2;
		else
			at = end;
		if (at + sizeof(port) <= end)
			bpf_probe_read_kernel(&port, sizeof(port), (void *)at);
	}
	land(priority, bpf_ntohs(port), BPF_CORE_READ(socket, queue_id),
	     BPF_CORE_READ((const struct net_device___generic *)dev, xdp_prog) == program ? GENERIC : NATIVE);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
