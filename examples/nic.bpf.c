// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * An XDP program of one's own that tells the hash and the VLAN tag that the NIC has:
 *
 *	clang -g -O2 -target bpf -idirafter /usr/include/$(uname -m)-linux-gnu \
 *		-I crates/bpf/include -c examples/nic.bpf.c -o nic.bpf.o
 *	ringside rx eth0 --program nic.bpf.o --hints
 *
 * (As examples/hints.bpf.c.) It is loaded for that device alone: Linux 6.8, native mode.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "ringside/hints.h"
#include "ringside/nic.h"

struct rx_flow {
	__u32 hash;
	__u32 hash_type;
	__u16 vlan; /* 0: none */
	__u16 hashed; /* 0: neither hash nor its type mean anything */
	__u32 btf_id;
} RINGSIDE_HINTS;

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, __u32);
} xsks_map SEC(".maps");

SEC("xdp")
int nic(struct xdp_md *ctx)
{
	struct ethhdr *ethernet = (void *)(long)ctx->data;
	enum xdp_rss_hash_type hash_type = XDP_RSS_TYPE_NONE;
	struct rx_flow *flow;
	__be16 vlan_proto;
	__u16 tci = 0;
	__u32 hash = 0;

	/* ARP and IPv6, with its neighbour discovery, stay the kernel's: the host stays reachable. */
	if ((void *)(ethernet + 1) > (void *)(long)ctx->data_end ||
	    ethernet->h_proto == bpf_htons(ETH_P_ARP) || ethernet->h_proto == bpf_htons(ETH_P_IPV6))
		return XDP_PASS;

	flow = ringside_hints(ctx, struct rx_flow);
	if (flow) {
		flow->hashed = !bpf_xdp_metadata_rx_hash(ctx, &hash, &hash_type);
		flow->hash = hash;
		flow->hash_type = hash_type;
		if (bpf_xdp_metadata_rx_vlan_tag(ctx, &vlan_proto, &tci))
			tci = 0;
		flow->vlan = tci & 0xfff;
		flow->btf_id = ringside_hints_id(struct rx_flow);
	}
	return bpf_redirect_map(&xsks_map, ctx->rx_queue_index, XDP_PASS);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
