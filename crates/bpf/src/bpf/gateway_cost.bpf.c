// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * What the gateway's program costs: run again and again by BPF_PROG_TEST_RUN, on
 * one packet that is made new each time, for another receiver. Beside it the least
 * that could do the same look-up and rewrite, and nothing at all.
 */
#include "gateway_parse.h"
#include "gateway_table.h"

const volatile __u32 first_receiver = 0; /* its IPv4 address, host order */
const volatile __u32 receivers = 1;
const volatile __be32 gateway = 0; /* the address that packets come to */

/* What there is without a table of one's own: the kernel's hash, filled with the same. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1); /* set before loading */
	__type(key, struct neighbor_key);
	__type(value, struct neighbor);
} hash SEC(".maps");

/* Which program a packet is for. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} target SEC(".maps");

/* VXLAN over IPv4, with an IPv4 packet in it. */
struct headers {
	struct ethhdr *eth, *inner_eth;
	struct iphdr *ip, *inner_ip;
	struct udphdr *udp;
	__be32 *vxlan;
};

static __always_inline int find(struct xdp_md *ctx, struct headers *packet)
{
	packet->eth = (void *)(long)ctx->data;
	packet->ip = (void *)(packet->eth + 1);
	packet->udp = (void *)(packet->ip + 1);
	packet->vxlan = (void *)(packet->udp + 1);
	packet->inner_eth = (void *)(packet->vxlan + 2);
	packet->inner_ip = (void *)(packet->inner_eth + 1);
	return FITS(packet->inner_ip, (void *)(long)ctx->data_end);
}

SEC("xdp.frags")
int each_anew(struct xdp_md *ctx)
{
	struct headers packet;

	if (!find(ctx, &packet))
		return XDP_ABORTED;
	packet.ip->daddr = gateway;
	/* As one word, as which the fast path reads it: a CPU waits for a part that was just written before it reads the whole. */
	*(__u32 *)&packet.ip->frag_off = bpf_htonl(64 << 8 | IPPROTO_UDP);
	packet.inner_ip->daddr = bpf_htonl(first_receiver + bpf_get_prandom_u32() % receivers);
	bpf_tail_call(ctx, &target, 0);
	return XDP_ABORTED;
}

SEC("xdp.frags")
int nothing(struct xdp_md *ctx)
{
	return XDP_TX;
}

/* No options, no fragments, no other family, no checks, no counters. */
static __always_inline int send_on(struct xdp_md *ctx, int in_table)
{
	struct headers packet;
	struct neighbor_key key = {};
	struct neighbor *receiver, found = {};
	__u64 sum;

	if (!find(ctx, &packet))
		return XDP_PASS;
	if (type_of(packet.eth) != bpf_htons(ETH_P_IP) || packet.ip->protocol != IPPROTO_UDP ||
	    packet.ip->daddr != gateway || packet.udp->dest != bpf_htons(4789) ||
	    type_of(packet.inner_eth) != bpf_htons(ETH_P_IP))
		return XDP_PASS;
	key.network = NETWORK_V4 | bpf_ntohl(packet.vxlan[1]) >> 8;
	key.address[0] = packet.inner_ip->daddr;
	if (in_table)
		receiver = find_neighbor(&key, &found) ? &found : 0;
	else
		receiver = bpf_map_lookup_elem(&hash, &key);
	if (!receiver)
		return XDP_DROP;
	copy_mac(packet.eth->h_source, packet.eth->h_dest);
	copy_mac(packet.eth->h_dest, receiver->host_mac);
	copy_mac(packet.inner_eth->h_dest, receiver->mac);
	sum = (__u64)(__u16)~packet.ip->check + ~packet.ip->saddr + ~packet.ip->daddr;
	sum += (__u64)gateway + receiver->host[0] + (__u16)~bpf_htons(0x0100);
	packet.ip->saddr = gateway;
	packet.ip->daddr = receiver->host[0];
	packet.ip->ttl--;
	packet.ip->check = ~fold_wide(sum);
	return XDP_TX;
}

SEC("xdp.frags")
int least(struct xdp_md *ctx)
{
	return send_on(ctx, 0);
}

/* With the look-up that the gateway has. */
SEC("xdp.frags")
int least_table(struct xdp_md *ctx)
{
	return send_on(ctx, 1);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
