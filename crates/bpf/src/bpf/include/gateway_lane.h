/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The straight lane: an IPv4 packet of a tenant in plain VXLAN over plain IPv4, to a
 * receiver without rules that is in the cache and leaves as it came. Most packets are
 * like that, and everything has its fixed place in them: one look at the length, and
 * nothing that depends on what came before. Whatever is not exactly so goes the long
 * way, which decides the same and more; what is done here is what it would do.
 */
#ifndef RINGSIDE_GATEWAY_LANE_H
#define RINGSIDE_GATEWAY_LANE_H

#include "gateway_forward.h"

#define PLAIN_IPV4 0x45 /* version 4, five words */
#define NOT_FOR_ONE 0xe0000000 /* multicast, broadcast, and what nobody has */
#define PLAIN_HEADERS                                                                     \
	(sizeof(struct iphdr) + sizeof(struct udphdr) + sizeof(struct tunnel) +           \
	 sizeof(struct ethhdr))

static __always_inline int is_plain(const struct iphdr *ip)
{
	return *(const __u8 *)ip == PLAIN_IPV4 &&
	       !(ip->frag_off & bpf_htons(IP_FRAGMENT_OFFSET | IP_MORE_FRAGMENTS));
}

/* The sum of a pseudo header alone, which is there if the rest is left to a NIC? */
static __always_inline int is_left(__u16 check, const struct iphdr *ip, __u32 length)
{
	return check && check == pseudo_header(ip, 0, ip->protocol, length);
}

/* Whole, as long as the packet, and with no checksum that is left to a NIC? */
static __always_inline int is_upper_plain(const struct iphdr *ip, __u32 length)
{
	const struct tcphdr *tcp = (const void *)(ip + 1);
	const struct udphdr *udp = (const void *)(ip + 1);

	if (ip->protocol == IPPROTO_TCP)
		return length >= sizeof(*tcp) && !is_left(tcp->check, ip, length);
	if (ip->protocol == IPPROTO_UDP)
		return length >= sizeof(*udp) && bpf_ntohs(udp->len) == length &&
		       !is_left(udp->check, ip, length);
	return 1;
}

/* Seldom, and hence not in the lane itself. */
static __noinline int tell_plain(const struct iphdr *ip, const struct iphdr *inner, __u32 network)
{
	struct flow flow = {
		.network = network,
		.host = { ip->saddr },
		.source = { inner->saddr },
		.destination = { inner->daddr },
	};

	return tell_flow(&flow);
}

/* Sent on: true. False: nothing is done, and it goes the long way. */
static __always_inline int straight_on(struct xdp_md *ctx, const struct config *config)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = data;
	struct iphdr *ip = (void *)(eth + 1);
	struct udphdr *udp = (void *)(ip + 1);
	struct tunnel *tunnel = (void *)(udp + 1);
	struct ethhdr *inner = (void *)(tunnel + 1);
	struct iphdr *inner_ip = (void *)(inner + 1);
	struct tcphdr *upper = (void *)(inner_ip + 1);
	struct neighbor_key key = {};
	struct neighbor *receiver;
	const struct port *by;
	__u32 total, inner_total;
	__u64 old, new;
	__u16 before;
	int routed;

	if (!FITS(upper, end) || (config->flags | config->sampling.on))
		return 0;
	total = bpf_ntohs(ip->tot_len);
	inner_total = bpf_ntohs(inner_ip->tot_len);
	if (type_of(eth) != bpf_htons(ETH_P_IP) || !is_plain(ip) || ip->protocol != IPPROTO_UDP ||
	    ip->ttl <= MOST_TTL_LEFT || ip->daddr != config->v4[0] || !config->v4_count ||
	    udp->dest != config->vxlan_port || bpf_ntohs(udp->len) + sizeof(*ip) != total ||
	    total > end - (void *)ip || !(tunnel->flags & VXLAN_VALID) ||
	    is_left(udp->check, ip, total - sizeof(*ip)))
		return 0;
	/* As long as what it is in: what is padded goes the long way. */
	if (type_of(inner) != bpf_htons(ETH_P_IP) || (inner->h_dest[0] & 1) || !is_plain(inner_ip) ||
	    inner_total + PLAIN_HEADERS != total || inner_total < sizeof(*inner_ip) ||
	    (inner_ip->daddr & bpf_htonl(NOT_FOR_ONE)) == bpf_htonl(NOT_FOR_ONE) ||
	    !is_upper_plain(inner_ip, inner_total - sizeof(*inner_ip)))
		return 0;

	key.network = NETWORK_V4 | bpf_ntohl(tunnel->vni) >> 8;
	key.address[0] = inner_ip->daddr;
	receiver = bpf_map_lookup_elem(&neighbors, &key);
	if (!receiver || receiver->flags || receiver->port >= MOST_PORTS ||
	    receiver->encapsulation > VXLAN)
		return 0;
	by = &config->ports[receiver->port];
	routed = !same_mac(inner->h_dest, receiver->mac);
	if (by->ifindex != ctx->ingress_ifindex || total > by->mtu || !by->v4 ||
	    (routed && inner_ip->ttl <= MOST_TTL_LEFT))
		return 0;

	if (!receiver->used)
		receiver->used = 1;
	count(FORWARDED, sizeof(*eth) + total);
	if (config->one_in && is_chosen(FORWARDED, config->one_in))
		tell_plain(ip, inner_ip, key.network);
	old = (__u64)ip->saddr + ip->daddr;
	new = (__u64)by->v4 + receiver->host[0];
	before = word_at(&ip->ttl);
	copy_mac(eth->h_dest, receiver->host_mac);
	copy_mac(eth->h_source, by->mac);
	ip->saddr = by->v4;
	ip->daddr = receiver->host[0];
	ip->check = replaced(ip->check, old + before, new + one_less(&ip->ttl, 0));
	if (routed) {
		__u16 check = inner_ip->check;

		old += sum_mac(inner->h_dest) + word_at(&inner_ip->ttl) + check;
		new += sum_mac(receiver->mac);
		before = word_at(&inner_ip->ttl);
		copy_mac(inner->h_dest, receiver->mac);
		inner_ip->check = replaced(check, before, one_less(&inner_ip->ttl, 0));
		new += word_at(&inner_ip->ttl) + inner_ip->check;
	}
	if (udp->check) {
		__u16 check = replaced(udp->check, old, new);

		udp->check = check ? check : 0xffff;
	}
	return 1;
}

#endif
