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
	const struct port *by;
	int foreign;
};

/* TENANT: it can be answered. */
static __always_inline __u32 find_answer(struct xdp_md *ctx, const struct config *config,
					 const struct packet *packet, struct answer *answer)
{
	int arp = packet->content == ARP;
	struct neighbor_key key = {};
	struct neighbor who = {};

	if (arp) {
		struct arp *asked = packet->network;

		key.network = NETWORK_V4 | packet->vni;
		__builtin_memcpy(key.address, asked->target, sizeof(asked->target));
	} else {
		struct ipv6hdr *ip6 = packet->network;
		struct discovery *asked = (void *)(ip6 + 1);

		key.network = NETWORK_V6 | packet->vni;
		__builtin_memcpy(key.address, asked->target, sizeof(asked->target));
	}
	if (!find_neighbor(&key, &who))
		return SLOW_MISS;
	__builtin_memcpy(answer->mac, who.mac, ETH_ALEN);
	answer->foreign = who.flags & FOREIGN;
	/* It asks whether somebody else has its own address: nobody has. */
	if (same_mac(answer->mac, packet->inner->h_source))
		return arp ? DROP_ARP_NOT_ASKED : DROP_DISCOVERY_NOT_ASKED;

	if (packet->has_options ||
	    (!arp && packet->network_len != sizeof(struct ipv6hdr) + SOLICITATION_LEN))
		return SLOW_QUESTION;
	if (bpf_xdp_get_buff_len(ctx) != sizeof(struct ethhdr) + packet->length ||
	    packet->end - packet->data != sizeof(struct ethhdr) + packet->length)
		return SLOW_QUESTION;

	for (__u32 i = 0; i < MOST_PORTS; i++) {
		if (config->ports[i].ifindex == ctx->ingress_ifindex) {
			answer->by = &config->ports[i];
			return TENANT;
		}
	}
	return SLOW_ROUTE;
}

static __always_inline void answer_arp(struct packet *packet, const __u8 *mac)
{
	struct arp *arp = packet->network;
	__be16 high = arp->target[0], low = arp->target[1];

	arp->operation = bpf_htons(2);
	__builtin_memcpy(arp->target_mac, arp->sender_mac, ETH_ALEN);
	arp->target[0] = arp->sender[0];
	arp->target[1] = arp->sender[1];
	__builtin_memcpy(arp->sender_mac, mac, ETH_ALEN);
	arp->sender[0] = high;
	arp->sender[1] = low;
	__builtin_memcpy(packet->inner->h_dest, packet->inner->h_source, ETH_ALEN);
}

static __always_inline void answer_discovery(struct packet *packet, const __u8 *mac)
{
	const __u8 all_nodes_mac[ETH_ALEN] = {0x33, 0x33, 0, 0, 0, 1};
	struct ipv6hdr *ip6 = packet->network;
	struct discovery *message = (void *)(ip6 + 1);
	__be32 *to = (__be32 *)&ip6->saddr;
	__u64 sum;

	*(__be32 *)ip6 = bpf_htonl(6u << 28);
	message->flags = ADVERTISEMENT_OVERRIDE;
	if (to[0] | to[1] | to[2] | to[3]) {
		message->flags |= ADVERTISEMENT_SOLICITED;
		__builtin_memcpy(&ip6->daddr, to, sizeof(ip6->daddr));
		__builtin_memcpy(packet->inner->h_dest, packet->inner->h_source, ETH_ALEN);
	} else {
		/* Who has no address yet asks whether it may have this one: all are told that it is taken. */
		ip6->daddr.s6_addr32[0] = bpf_htonl(0xff020000);
		ip6->daddr.s6_addr32[1] = ip6->daddr.s6_addr32[2] = 0;
		ip6->daddr.s6_addr32[3] = bpf_htonl(1);
		__builtin_memcpy(packet->inner->h_dest, all_nodes_mac, ETH_ALEN);
	}
	__builtin_memcpy(&ip6->saddr, message->target, sizeof(ip6->saddr));
	message->type = ICMP6_ADVERTISEMENT;
	message->reserved[0] = message->reserved[1] = message->reserved[2] = 0;
	message->option = TARGET_LINK_LAYER;
	__builtin_memcpy(message->mac, mac, ETH_ALEN);
	message->check = 0;
	sum = bpf_htons(SOLICITATION_LEN) + bpf_htons(IPPROTO_ICMPV6);
#pragma unroll
	for (int i = 0; i < 4; i++)
		sum += (__u64)ip6->saddr.s6_addr32[i] + ip6->daddr.s6_addr32[i];
#pragma unroll
	for (int i = 0; i < SOLICITATION_LEN / 4; i++)
		sum += ((__u32 *)message)[i];
	message->check = ~fold_wide(sum);
}

static __always_inline void send_back(struct xdp_md *ctx, const struct config *config,
				      struct packet *packet, const struct answer *answer)
{
	struct ethhdr *eth = packet->data;
	struct udphdr *udp = packet->udp;
	struct tunnel *tunnel = packet->tunnel;
	__u64 sum = bpf_htons(IPPROTO_UDP);

	__builtin_memcpy(packet->inner->h_source, answer->mac, ETH_ALEN);
	__builtin_memcpy(eth->h_dest, eth->h_source, ETH_ALEN);
	__builtin_memcpy(eth->h_source, answer->by->mac, ETH_ALEN);
	tunnel->flags = packet->encapsulation == VXLAN ? VXLAN_VALID : 0;
	tunnel->control = 0;
	tunnel->protocol = packet->encapsulation == VXLAN ? 0 : bpf_htons(ETH_P_TRANSPARENT);
	tunnel->vni &= bpf_htonl(0xffffff00);
	udp->len = bpf_htons(sizeof(*udp) + sizeof(*tunnel) + packet->inner_len);
	udp->check = 0;
	if (!packet->v6) {
		struct iphdr *ip = packet->ip;
		__be32 to = ip->saddr;
		__u64 header = 0;

		/* TOS and UDP source port stay. */
		ip->tot_len = bpf_htons(packet->length);
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
		struct ipv6hdr *ip6 = packet->ip;
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
		datagram = sum_datagram(ctx, (void *)udp - packet->data, bpf_ntohs(udp->len));
		udp->check = complement(fold_wide(sum + (datagram < 0 ? 0 : datagram)));
	}
}

#endif
