// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Points of a packet's way that have no tracepoint, by entries of functions: some kernels and configurations do without these.
 * The maps are those of trace.bpf.c. Each program is loaded by itself.
 */
#include "trace.h"

/* XDP sockets, and packet sockets past the queueing discipline. */
SEC("fentry/__dev_direct_xmit")
int BPF_PROG(trace_direct, struct sk_buff *skb)
{
	sending(skb, POINT_TRANSMIT);
	return 0;
}

/* Whoever puts it on a backlog. */
SEC("fentry/enqueue_to_backlog")
int BPF_PROG(trace_enqueued, struct sk_buff *skb)
{
	receiving(skb, POINT_BACKLOG);
	return 0;
}

static __always_inline int given(const struct sk_buff *skb, const struct net_device *dev, struct id *id, __u64 now)
{
	struct here *here = this_cpu();
	struct event *event;
	struct probe probe;

	if (!here || !skb_probe(skb, (__u64)skb->head + skb->mac_header, &probe))
		return 0;
	*id = id_of(&probe);
	event = begin(here, POINT_SOCKET, id, now);
	if (!event)
		return 1;
	if (dev)
		on_device(event, dev);
	received(here, event);
	tell(event);
	return 1;
}

SEC("fentry/__udp_enqueue_schedule_skb")
int BPF_PROG(trace_udp, struct sock *sk, struct sk_buff *skb)
{
	__u64 now = bpf_ktime_get_ns();
	struct here *here = this_cpu();
	struct coming *coming;
	struct id id = {};

	if (!here)
		return 0;
	/* UDP has put other things where the device was. */
	given(skb, 0, &id, now);
	/* The socket tells of it next. */
	coming = comes(here, skb, &id, sk->__sk_common.skc_num, now);
	coming->is_queued = 1;
	return 0;
}

/* A reader is done with it. */
SEC("fentry/skb_consume_udp")
int BPF_PROG(trace_consumed, struct sock *sk, struct sk_buff *skb, int length)
{
	/* Who only peeks tells so by an error. */
	if (length >= 0)
		copied(skb);
	return 0;
}

/* linux/if_packet.h: what is sent is shown to packet sockets, too */
#define PACKET_OUTGOING 4

SEC("fentry/tpacket_rcv")
int BPF_PROG(trace_tpacket, struct sk_buff *skb, struct net_device *dev)
{
	__u64 now = bpf_ktime_get_ns();
	struct id id;

	if (BPF_CORE_READ_BITFIELD(skb, pkt_type) != PACKET_OUTGOING)
		given(skb, dev, &id, now);
	return 0;
}

struct xdp_rxq_info {
	struct net_device *dev;
} __attribute__((preserve_access_index));

struct xdp_buff {
	void *data;
	void *data_end;
	struct xdp_rxq_info *rxq;
} __attribute__((preserve_access_index));

/* A frame that the XDP program has sent to an XDP socket. */
static __always_inline struct here *for_xsk(const struct xdp_buff *xdp)
{
	struct here *here = this_cpu();
	struct probe probe;

	if (!here)
		return 0;
	here->named = NOT_NAMED;
	if (!find_probe((__u64)xdp->data, (__u64)xdp->data_end, &probe))
		return 0;
	here->ring = id_of(&probe);
	return here;
}

/* Native XDP, zero-copy or not. When it is on the ring the tracepoint tells; the readers are woken up after that. */
SEC("fentry/__xsk_map_redirect")
int BPF_PROG(trace_xsk, void *xs, struct xdp_buff *xdp)
{
	struct here *here = for_xsk(xdp);

	if (here)
		here->named = NAMED;
	return 0;
}

/* Generic XDP, which wakes the readers up itself, before the tracepoint. */
SEC("fentry/xsk_generic_rcv")
int BPF_PROG(trace_xsk_generic, void *xs, struct xdp_buff *xdp)
{
	__u64 now = bpf_ktime_get_ns();
	struct here *here = for_xsk(xdp);
	struct event *event;

	if (!here)
		return 0;
	here->named = TOLD;
	here->is_ring = 1;
	here->is_waking = 0;
	event = begin(here, POINT_SOCKET, &here->ring, now);
	if (!event)
		return 0;
	on_device(event, xdp->rxq->dev);
	received(here, event);
	tell(event);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
