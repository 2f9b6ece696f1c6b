// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Counts what the kernel drops after the gateway's program has said that it is to be sent: a ring
 * that is full, a link that is down, a driver that takes none. By the tracepoints that the kernel
 * has for it, which are hit once for each bulk of packets, or by errors alone.
 *
 * They are of all interfaces and namespaces; counted is what is the gateway's. Pinned, these programs
 * count for the next daemon as they are: whoever changes what they do counts GATEWAY_LAYOUT up, too.
 */
#include "device.h"
#include "gateway.h"

static __always_inline int is_ours(const struct net_device *dev)
{
	const struct config *config = current_config();
	__u32 ifindex = BPF_CORE_READ(dev, ifindex);

	/* Indexes of interfaces repeat from one network namespace to the next. */
	if (!config || config->namespace != BPF_CORE_READ(dev, nd_net.net, ns.inum))
		return 0;
	for (__u32 i = 0; i < MOST_PORTS; i++) {
		if (config->ports[i].ifindex == ifindex)
			return 1;
	}
	return 0;
}

static __always_inline int lose(const struct net_device *dev, int packets)
{
	static const __u32 outcome = DROP_TRANSMIT_LOST;
	struct counter *counter;

	if (packets <= 0 || !is_ours(dev))
		return 0;
	counter = bpf_map_lookup_elem(&counters, &outcome);
	if (counter)
		counter->packets += packets;
	return 0;
}

/* XDP_TX: a driver had no room for a packet, or generic XDP could not send it. */
SEC("tp_btf/xdp_exception")
int BPF_PROG(ringside_lost_x, const struct net_device *dev, const void *xdp, __u32 act)
{
	return act == XDP_TX ? lose(dev, 1) : 0;
}

/* XDP_TX by drivers that collect packets first. */
SEC("tp_btf/xdp_bulk_tx")
int BPF_PROG(ringside_lost_b, const struct net_device *dev, int sent, int drops, int err)
{
	return lose(dev, drops);
}

/* XDP_REDIRECT: what was collected for another interface. */
SEC("tp_btf/xdp_devmap_xmit")
int BPF_PROG(ringside_lost_d, const struct net_device *from, const struct net_device *to, int sent, int drops, int err)
{
	return lose(from, drops);
}

/* XDP_REDIRECT: not even collected. What finds no room with a worker has other counters. */
SEC("tp_btf/xdp_redirect_err")
int BPF_PROG(ringside_lost_r, const struct net_device *dev, const void *xdp, const void *target, int err, __u32 kind)
{
	return kind == BPF_MAP_TYPE_DEVMAP ? lose(dev, 1) : 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
