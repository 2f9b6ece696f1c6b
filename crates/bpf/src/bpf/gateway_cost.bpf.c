// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * What the gateway's program costs: run again and again by BPF_PROG_TEST_RUN, on
 * one packet that is made new each time, for another receiver. Beside it the least
 * that could do the same look-up and rewrite, and nothing at all.
 */
#include "checksum.h"
#include "gateway.h"

const volatile __u32 first_receiver = 0; /* its IPv4 address, host order */
const volatile __u32 receivers = 1;
const volatile __be32 gateway = 0; /* the address that packets come to */

/* Which program a packet is for. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} target SEC(".maps");

/* VXLAN over IPv4, with an IPv4 packet in it. */
struct headers {
	struct ethhdr eth;
	struct iphdr ip;
	struct udphdr udp;
	__be32 vxlan[2];
	struct ethhdr inner_eth;
	struct iphdr inner_ip;
} __attribute__((packed));

SEC("xdp.frags")
int each_anew(struct xdp_md *ctx)
{
	struct headers *packet = (void *)(long)ctx->data;

	if (!FITS(packet, (void *)(long)ctx->data_end))
		return XDP_ABORTED;
	packet->ip.daddr = gateway;
	/* As one word, of which it then is read, too. */
	*(__u16 *)&packet->ip.ttl = bpf_htons(64 << 8 | IPPROTO_UDP);
	packet->inner_ip.daddr = bpf_htonl(first_receiver + bpf_get_prandom_u32() % receivers);
	bpf_tail_call(ctx, &target, 0);
	return XDP_ABORTED;
}

SEC("xdp.frags")
int nothing(struct xdp_md *ctx)
{
	return XDP_TX;
}

/* No options, no fragments, no other family, no checks, no counters. */
SEC("xdp.frags")
int least(struct xdp_md *ctx)
{
	struct headers *packet = (void *)(long)ctx->data;
	struct neighbor_key key = {};
	struct neighbor *receiver;
	__u64 sum;

	if (!FITS(packet, (void *)(long)ctx->data_end))
		return XDP_PASS;
	if (packet->eth.h_proto != bpf_htons(ETH_P_IP) || packet->ip.protocol != IPPROTO_UDP ||
	    packet->ip.daddr != gateway || packet->udp.dest != bpf_htons(4789) ||
	    packet->inner_eth.h_proto != bpf_htons(ETH_P_IP))
		return XDP_PASS;
	key.network = NETWORK_V4 | bpf_ntohl(packet->vxlan[1]) >> 8;
	key.address[0] = packet->inner_ip.daddr;
	receiver = bpf_map_lookup_elem(&neighbors, &key);
	if (!receiver)
		return XDP_DROP;
	__builtin_memcpy(packet->eth.h_source, packet->eth.h_dest, ETH_ALEN);
	__builtin_memcpy(packet->eth.h_dest, receiver->host_mac, ETH_ALEN);
	__builtin_memcpy(packet->inner_eth.h_dest, receiver->mac, ETH_ALEN);
	sum = (__u64)(__u16)~packet->ip.check + ~packet->ip.saddr + ~packet->ip.daddr;
	sum += (__u64)gateway + receiver->host[0] + (__u16)~bpf_htons(0x0100);
	packet->ip.saddr = gateway;
	packet->ip.daddr = receiver->host[0];
	packet->ip.ttl--;
	packet->ip.check = ~fold_wide(sum);
	return XDP_TX;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
