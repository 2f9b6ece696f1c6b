/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Answers to ARP and neighbour solicitations, in place of the question: the
 * bytes of answer::i_have() in crates/gateway-core. Only where the answer is as
 * long as the question and takes the same headers: no IPv4 or Geneve options to
 * be taken out, nothing behind.
 */
#ifndef RINGSIDE_GATEWAY_ANSWER_H
#define RINGSIDE_GATEWAY_ANSWER_H

#include "gateway_parse.h"
#include "gateway_table.h"

#define ICMP6_ADVERTISEMENT 136
#define ADVERTISEMENT_SOLICITED 0x40
#define ADVERTISEMENT_OVERRIDE 0x20
#define TARGET_LINK_LAYER 2
#define DONT_FRAGMENT 0x4000

struct answer {
	__u8 mac[ETH_ALEN]; /* of whom is asked for */
	__u16 place; /* of the port that it leaves by */
	__u32 foreign;
};

/* A step. TENANT: it can be answered. */
__noinline int find_answer(struct xdp_md *ctx, const struct config *config,
			   const struct found *found, struct answer *answer)
{
	struct neighbor_key key = {};
	struct neighbor who = {};
	struct packet packet;
	int arp;

	if (!config || !found || !answer || !open_packet(ctx, found, &packet))
		return SLOW_HEADERS;
	arp = found->content == ARP;
	if (arp) {
		struct arp *asked = packet.network;

		if (!FITS(asked, packet.end))
			return SLOW_HEADERS;
		key.network = NETWORK_V4 | found->vni;
		__builtin_memcpy(key.address, asked->target, sizeof(asked->target));
	} else {
		struct ipv6hdr *ip6 = packet.network;
		struct discovery *asked = (void *)(ip6 + 1);

		if (!FITS(asked, packet.end))
			return SLOW_HEADERS;
		key.network = NETWORK_V6 | found->vni;
		__builtin_memcpy(key.address, asked->target, sizeof(asked->target));
	}
	if (!find_neighbor(&key, &who))
		return SLOW_MISS;
	__builtin_memcpy(answer->mac, who.mac, ETH_ALEN);
	answer->foreign = who.flags & FOREIGN;
	/* It asks whether somebody else has its own address: nobody has. */
	if (same_mac(answer->mac, packet.inner->h_source))
		return arp ? DROP_ARP_NOT_ASKED : DROP_DISCOVERY_NOT_ASKED;

	if (found->has_options ||
	    (!arp && found->network_len != sizeof(struct ipv6hdr) + SOLICITATION_LEN))
		return SLOW_QUESTION;
	if (bpf_xdp_get_buff_len(ctx) != sizeof(struct ethhdr) + found->length ||
	    packet.end - packet.data != sizeof(struct ethhdr) + found->length)
		return SLOW_QUESTION;

	for (__u32 i = 0; i < MOST_PORTS; i++) {
		if (config->ports[i].ifindex == ctx->ingress_ifindex) {
			answer->place = i;
			return TENANT;
		}
	}
	return SLOW_ROUTE;
}

/* A step: the tenant's frame becomes the answer. False: nothing is done, for headers are not there. */
__noinline int answer_arp(struct xdp_md *ctx, const struct found *found,
			  const struct answer *answer)
{
	struct packet packet;
	__be16 high, low;
	struct arp *arp;

	if (!found || !answer || !open_packet(ctx, found, &packet))
		return 0;
	arp = packet.network;
	if (!FITS(arp, packet.end))
		return 0;
	high = arp->target[0];
	low = arp->target[1];
	arp->operation = bpf_htons(2);
	__builtin_memcpy(arp->target_mac, arp->sender_mac, ETH_ALEN);
	arp->target[0] = arp->sender[0];
	arp->target[1] = arp->sender[1];
	__builtin_memcpy(arp->sender_mac, answer->mac, ETH_ALEN);
	arp->sender[0] = high;
	arp->sender[1] = low;
	__builtin_memcpy(packet.inner->h_dest, packet.inner->h_source, ETH_ALEN);
	__builtin_memcpy(packet.inner->h_source, answer->mac, ETH_ALEN);
	return 1;
}

/* A step: the same of neighbour discovery. */
__noinline int answer_discovery(struct xdp_md *ctx, const struct found *found,
				const struct answer *answer)
{
	struct discovery *message;
	struct packet packet;
	struct ipv6hdr *ip6;
	__u64 sum;

	if (!found || !answer || !open_packet(ctx, found, &packet))
		return 0;
	ip6 = packet.network;
	message = (void *)(ip6 + 1);
	if (!FITS(message, packet.end))
		return 0;
	*(__be32 *)ip6 = bpf_htonl(6u << 28);
	message->flags = ADVERTISEMENT_OVERRIDE | ADVERTISEMENT_SOLICITED;
	__builtin_memcpy(&ip6->daddr, &ip6->saddr, sizeof(ip6->daddr));
	__builtin_memcpy(packet.inner->h_dest, packet.inner->h_source, ETH_ALEN);
	__builtin_memcpy(&ip6->saddr, message->target, sizeof(ip6->saddr));
	message->type = ICMP6_ADVERTISEMENT;
	message->reserved[0] = message->reserved[1] = message->reserved[2] = 0;
	message->option = TARGET_LINK_LAYER;
	__builtin_memcpy(message->mac, answer->mac, ETH_ALEN);
	message->check = 0;
	sum = bpf_htons(SOLICITATION_LEN) + bpf_htons(IPPROTO_ICMPV6);
#pragma unroll
	for (int i = 0; i < 4; i++)
		sum += (__u64)ip6->saddr.s6_addr32[i] + ip6->daddr.s6_addr32[i];
#pragma unroll
	for (int i = 0; i < SOLICITATION_LEN / 4; i++)
		sum += ((__u32 *)message)[i];
	message->check = ~fold_wide(sum);
	__builtin_memcpy(packet.inner->h_source, answer->mac, ETH_ALEN);
	return 1;
}

/* A step: the outer headers, back to where the question came from. As above. */
__noinline int send_back(struct xdp_md *ctx, const struct config *config,
			 const struct found *found, const struct answer *answer)
{
	__u64 sum = bpf_htons(IPPROTO_UDP);
	struct tunnel *tunnel;
	struct packet packet;
	struct ethhdr *eth;
	struct udphdr *udp;

	if (!config || !found || !answer || !open_packet(ctx, found, &packet))
		return 0;
	eth = packet.data;
	udp = packet.udp;
	tunnel = packet.tunnel;
	__builtin_memcpy(eth->h_dest, eth->h_source, ETH_ALEN);
	__builtin_memcpy(eth->h_source, config->ports[answer->place & (MOST_PORTS - 1)].mac, ETH_ALEN);
	tunnel->flags = found->encapsulation == VXLAN ? VXLAN_VALID : 0;
	tunnel->control = 0;
	tunnel->protocol = found->encapsulation == VXLAN ? 0 : bpf_htons(ETH_P_TRANSPARENT);
	tunnel->vni &= bpf_htonl(0xffffff00);
	udp->len = bpf_htons(sizeof(*udp) + sizeof(*tunnel) + found->inner_len);
	udp->check = 0;
	if (!found->v6) {
		struct iphdr *ip = packet.ip;
		__be32 to = ip->saddr;
		__u64 header = 0;

		/* TOS and UDP source port stay. */
		ip->tot_len = bpf_htons(found->length);
		ip->id = 0;
		ip->frag_off = bpf_htons(DONT_FRAGMENT);
		ip->ttl = config->ttl;
		ip->check = 0;
		ip->saddr = ip->daddr;
		ip->daddr = to;
#pragma unroll
		for (int i = 0; i < 5; i++)
			header += ((__u32 *)ip)[i];
		ip->check = ~fold_wide(header);
	} else {
		struct ipv6hdr *ip6 = packet.ip;
		struct in6_addr to = ip6->saddr;
		int datagram;

		/* Version and traffic class stay, the flow label was the question's. */
		*(__be32 *)ip6 &= bpf_htonl(0xfff00000);
		ip6->payload_len = udp->len;
		ip6->hop_limit = config->ttl;
		ip6->saddr = ip6->daddr;
		ip6->daddr = to;
#pragma unroll
		for (int i = 0; i < 4; i++)
			sum += (__u64)ip6->saddr.s6_addr32[i] + ip6->daddr.s6_addr32[i];
		sum += udp->len;
		/* RFC 768: over IPv6 there has to be one. It is all in the first buffer: see find_answer(). */
		datagram = sum_datagram(ctx, (void *)udp - packet.data, bpf_ntohs(udp->len));
		udp->check = complement(fold_wide(sum + (datagram < 0 ? 0 : datagram)));
	}
	return 1;
}

#endif
