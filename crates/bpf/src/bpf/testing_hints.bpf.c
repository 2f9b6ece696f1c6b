// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Tests of what a driver tells about a packet. The functions that ask it can only be called by a program that is loaded for
 * one device: https://docs.kernel.org/networking/xdp-rx-metadata.html
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* The kernel's own, of which only the name matters here. */
enum xdp_rss_hash_type {
	XDP_RSS_TYPE_NONE,
};

extern int bpf_xdp_metadata_rx_timestamp(const struct xdp_md *ctx, __u64 *timestamp) __ksym;
extern int bpf_xdp_metadata_rx_hash(const struct xdp_md *ctx, __u32 *hash, enum xdp_rss_hash_type *type) __ksym;
extern int bpf_xdp_metadata_rx_vlan_tag(const struct xdp_md *ctx, __be16 *proto, __u16 *tci) __ksym;

/* What lies in front of a packet: the values, and what each function answered. Rust reads it in this order. */
struct told {
	__u64 timestamp;
	__u32 hash;
	__u32 hash_type;
	__be16 vlan_proto;
	__u16 vlan_tci;
	__s32 timestamp_answer;
	__s32 hash_answer;
	__s32 vlan_answer;
};

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, __u32);
} hint_xsks SEC(".maps");

SEC("xdp")
int tell(struct xdp_md *ctx)
{
	/* What nobody writes stays all ones. */
	__u64 timestamp = ~0ull;
	__u32 hash = ~0u;
	enum xdp_rss_hash_type hash_type = ~0u;
	__be16 vlan_proto = 0xffff;
	__u16 vlan_tci = 0xffff;
	struct told *told;

	if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(*told)))
		return XDP_ABORTED;
	told = (void *)(long)ctx->data_meta;
	if ((void *)(told + 1) > (void *)(long)ctx->data)
		return XDP_ABORTED;
	told->timestamp_answer = bpf_xdp_metadata_rx_timestamp(ctx, &timestamp);
	told->hash_answer = bpf_xdp_metadata_rx_hash(ctx, &hash, &hash_type);
	told->vlan_answer = bpf_xdp_metadata_rx_vlan_tag(ctx, &vlan_proto, &vlan_tci);
	told->timestamp = timestamp;
	told->hash = hash;
	told->hash_type = hash_type;
	told->vlan_proto = vlan_proto;
	told->vlan_tci = vlan_tci;
	return bpf_redirect_map(&hint_xsks, ctx->rx_queue_index, XDP_PASS);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
