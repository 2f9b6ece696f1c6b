// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * An XDP program of one's own that tells when and where a packet was received:
 *
 *	clang -g -O2 -target bpf -idirafter /usr/include/$(uname -m)-linux-gnu \
 *		-I crates/bpf/include -c examples/hints.bpf.c -o hints.bpf.o
 *	ringside rx eth0 --program hints.bpf.o --hints
 *
 * (With libbpf's headers there, package libbpf-dev; -idirafter is for Debian and Ubuntu.)
 *
 * Short packets get other hints than long ones: the receiver tells them apart by their ids.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "ringside/hints.h"

struct rx_time {
	__u64 rx_ktime; /* CLOCK_MONOTONIC, ns */
	__u32 rx_cpu;
	__u32 btf_id;
} RINGSIDE_HINTS;

struct rx_mark {
	__u32 mark;
	__u32 btf_id;
} RINGSIDE_HINTS;

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, __u32);
} xsks_map SEC(".maps");

SEC("xdp")
int hints(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *ethernet = data;

	/* ARP and IPv6, with its neighbour discovery, stay the kernel's: the host stays reachable. */
	if ((void *)(ethernet + 1) > end || ethernet->h_proto == bpf_htons(ETH_P_ARP) ||
	    ethernet->h_proto == bpf_htons(ETH_P_IPV6))
		return XDP_PASS;

	if (data + 128 > end) {
		struct rx_mark *mark = ringside_hints(ctx, struct rx_mark);

		if (mark) {
			mark->mark = 42;
			mark->btf_id = ringside_hints_id(struct rx_mark);
		}
	} else {
		struct rx_time *time = ringside_hints(ctx, struct rx_time);

		if (time) {
			time->rx_ktime = bpf_ktime_get_ns();
			time->rx_cpu = bpf_get_smp_processor_id();
			time->btf_id = ringside_hints_id(struct rx_time);
		}
	}
	return bpf_redirect_map(&xsks_map, ctx->rx_queue_index, XDP_PASS);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
