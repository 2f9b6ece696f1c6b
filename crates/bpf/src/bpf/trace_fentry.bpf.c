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

static __always_inline void given(struct sk_buff *skb, const struct net_device *dev)
{
	__u64 now = bpf_ktime_get_ns();
	struct here *here = this_cpu();
	struct event *event;
	struct probe probe;
	struct id id;

	if (!here || !skb_probe(skb, (__u64)skb->head + skb->mac_header, &probe))
		return;
	id = id_of(&probe);
	event = begin(here, POINT_SOCKET, &id, now);
	if (!event)
		return;
	if (dev)
		on_device(event, dev);
	received(here, event);
	tell(event);
}

SEC("fentry/__udp_enqueue_schedule_skb")
int BPF_PROG(trace_udp, struct sock *sk, struct sk_buff *skb)
{
	/* UDP has put other things where the device was. */
	given(skb, 0);
	return 0;
}

/* linux/if_packet.h: what is sent is shown to packet sockets, too */
#define PACKET_OUTGOING 4

SEC("fentry/tpacket_rcv")
int BPF_PROG(trace_tpacket, struct sk_buff *skb, struct net_device *dev)
{
	if (BPF_CORE_READ_BITFIELD(skb, pkt_type) != PACKET_OUTGOING)
		given(skb, dev);
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
	here->id = id_of(&probe);
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
	here->is_probe = 1;
	here->is_waking = 0;
	event = begin(here, POINT_SOCKET, &here->id, now);
	if (!event)
		return 0;
	on_device(event, xdp->rxq->dev);
	received(here, event);
	tell(event);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
