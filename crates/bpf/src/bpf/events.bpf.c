// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Counts what goes wrong with XDP, of all interfaces of the machine, by the tracepoints that the kernel has for it. They are
 * hit by errors alone: while all goes well this costs nothing.
 */
#include "device.h"

/* As in events.rs. */
#define REDIRECT 0
#define EXCEPTION 1

/* Indexes of interfaces repeat from one network namespace to the next. */
struct event {
	__u32 namespace;
	__u32 ifindex;
	__u32 kind;
	/* errno of a redirect, action of an exception */
	__u32 code;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct event);
	__type(value, __u64);
} events SEC(".maps");

static __always_inline void count(const struct net_device *dev, __u32 kind, __u32 code)
{
	struct event event = {
		.namespace = BPF_CORE_READ(dev, nd_net.net, ns.inum),
		.ifindex = BPF_CORE_READ(dev, ifindex),
		.kind = kind,
		.code = code,
	};
	__u64 one = 1;
	__u64 *seen = bpf_map_lookup_elem(&events, &event);

	/* Each CPU has its own, and is not interrupted by itself here. */
	if (seen)
		*seen += 1;
	else
		bpf_map_update_elem(&events, &event, &one, BPF_NOEXIST);
}

SEC("tp_btf/xdp_redirect_err")
int BPF_PROG(ringside_redir, const struct net_device *dev, const void *xdp, const void *target, int err)
{
	count(dev, REDIRECT, -err);
	return 0;
}

SEC("tp_btf/xdp_exception")
int BPF_PROG(ringside_except, const struct net_device *dev, const void *xdp, __u32 act)
{
	count(dev, EXCEPTION, act);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
