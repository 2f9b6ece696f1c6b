// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Counts what the kernel drops of what XDP has redirected from an interface to another one. A driver with no room for a burst takes
 * what it can: a TAP device counts one packet for the rest then, and the kernel frees all of it.
 * https://elixir.bootlin.com/linux/v6.18/C/ident/tun_xdp_xmit
 * https://elixir.bootlin.com/linux/v6.18/C/ident/bq_xmit_all
 *
 * By tracepoints that are hit once for each burst, or by errors alone.
 */
#include "one_device.h"

/* Rust reads it as two u64 in this order. */
struct lost {
	__u64 packets;
	/* Bursts that were taken in part or not for want of room. */
	__u64 bursts;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lost);
} counters SEC(".maps");

static __always_inline int lose(const struct net_device *dev, int packets, int is_burst)
{
	struct lost *lost;
	__u32 zero = 0;

	if (packets <= 0 || !is_it(dev))
		return 0;
	lost = bpf_map_lookup_elem(&counters, &zero);
	if (!lost)
		return 0;
	lost->packets += packets;
	lost->bursts += is_burst;
	return 0;
}

/* With an error the driver has looked at none of them. */
SEC("tp_btf/xdp_devmap_xmit")
int BPF_PROG(ringside_rlost, const struct net_device *from, const struct net_device *to, int sent, int drops, int err)
{
	return lose(from, drops, !err);
}

/* Not even collected for a burst. */
SEC("tp_btf/xdp_redirect_err")
int BPF_PROG(ringside_rlost_e, const struct net_device *dev, const void *xdp, const void *target, int err, __u32 kind)
{
	return kind == BPF_MAP_TYPE_DEVMAP ? lose(dev, 1, 0) : 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
