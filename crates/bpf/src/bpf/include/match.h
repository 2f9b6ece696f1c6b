/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Packets by address, port and protocol: FILTER_MATCH of steer.h.
 *
 * A packet matches if its destination is in match_dst, its source in match_src,
 * and its protocol and destination port in match_ports or match_icmp. A list that
 * is empty is no condition. With match_arp also the ARP and the neighbour
 * discovery that are about addresses of match_dst, and no other: the host needs
 * the rest.
 *
 * VLAN tags, extension headers and fragments are treated as for UDP ports
 * (parse.h). Without ports and protocol later fragments match, too.
 */
#ifndef RINGSIDE_MATCH_H
#define RINGSIDE_MATCH_H

#include <linux/tcp.h>

#include "parse.h"

/* Rust has the same numbers: filter/packets.rs. */
#define MATCH_MAX_PREFIXES 16
#define MATCH_MAX_PORTS 16

/*
 * The 32-bit words of an address as they are in the packet: first and second,
 * third and fourth, the earlier one in the low half. IPv4 has the first alone.
 */
struct match_address {
	__u64 high;
	__u64 low;
	__u64 version; /* 4 or 6 */
};

struct match_prefix {
	struct match_address address;
	__u64 high_mask;
	__u64 low_mask;
};

struct match_prefixes {
	__u64 count;
	struct match_prefix list[MATCH_MAX_PREFIXES];
};

struct match_range {
	__u32 protocol; /* IPPROTO_TCP or IPPROTO_UDP */
	__u16 first; /* host byte order */
	__u16 last;
};

struct match_ranges {
	__u32 count;
	struct match_range list[MATCH_MAX_PORTS];
};

const volatile struct match_prefixes match_dst = {};
const volatile struct match_prefixes match_src = {};
const volatile struct match_ranges match_ports = {};
const volatile __u32 match_icmp = 0;
const volatile __u32 match_arp = 0;

struct arp {
	__be16 hardware;
	__be16 protocol;
	__u8 hardware_len;
	__u8 protocol_len;
	__be16 operation;
	__u8 sender_mac[6];
	__u8 sender_ip[4];
	__u8 target_mac[6];
	__be32 target_ip;
};

/* Neighbour solicitation and advertisement: RFC 4861, 4.3 and 4.4. */
struct neighbour {
	__u8 type;
	__u8 code;
	__be16 checksum;
	__be32 flags;
	__be32 target[4];
};

#define ARP_ETHERNET 1
#define ND_SOLICITATION 135
#define ND_ADVERTISEMENT 136
#define TCP_HEADER_WORDS 5

/*
 * Not inlined, for it is unrolled: no index depends on the constants, which only
 * guessing processors and the verifier after them would let run too far. The
 * address is in registers: without CAP_PERFMON Linux 6.1 refuses a write of half
 * a slot of the stack.
 */
static __noinline int in_list(const volatile struct match_prefixes *prefixes, __u64 high, __u64 low,
			      __u64 version)
{
	__u64 count = prefixes->count;

#pragma unroll
	for (__u32 i = 0; i < MATCH_MAX_PREFIXES; i++) {
		const volatile struct match_prefix *prefix = &prefixes->list[i];

		if (i >= count)
			return 0;
		if (prefix->address.version == version &&
		    !(((high ^ prefix->address.high) & prefix->high_mask) |
		      ((low ^ prefix->address.low) & prefix->low_mask)))
			return 1;
	}
	return 0;
}

static __always_inline int in_prefixes(const volatile struct match_prefixes *prefixes,
				       struct match_address address)
{
	return in_list(prefixes, address.high, address.low, address.version);
}

static __noinline int in_ranges(__u32 protocol, __u32 port)
{
	__u32 count = match_ports.count;

#pragma unroll
	for (__u32 i = 0; i < MATCH_MAX_PORTS; i++) {
		const volatile struct match_range *range = &match_ports.list[i];

		if (i >= count)
			return 0;
		if (range->protocol == protocol && port >= range->first && port <= range->last)
			return 1;
	}
	return 0;
}

static __always_inline struct match_address address_v4(__be32 ip)
{
	return (struct match_address){.high = ip, .version = 4};
}

static __always_inline struct match_address address_v6(const __be32 *ip)
{
	return (struct match_address){
		.high = ip[0] | (__u64)ip[1] << 32,
		.low = ip[2] | (__u64)ip[3] << 32,
		.version = 6,
	};
}

/* Source and destination of what is IP. `cur` is at its header. */
static __always_inline enum parsed parse_addresses(const struct cursor *cur, __be16 proto,
						   struct match_address *src,
						   struct match_address *dst)
{
	if (proto == bpf_htons(ETH_P_IP)) {
		struct iphdr copy, *ip;

		if (!LOOK(cur, &copy, ip))
			return MALFORMED;
		*src = address_v4(ip->saddr);
		*dst = address_v4(ip->daddr);
		return PARSED;
	}
	if (proto == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr copy, *ip6;

		if (!LOOK(cur, &copy, ip6))
			return MALFORMED;
		*src = address_v6(ip6->saddr.in6_u.u6_addr32);
		*dst = address_v6(ip6->daddr.in6_u.u6_addr32);
		return PARSED;
	}
	return OTHER;
}

/*
 * Is this ARP or neighbour discovery about an address of match_dst? ARP that asks
 * for it, or answers it; neighbour discovery that is sent to it, or to a group and
 * about it. What is cut short, or of other hardware, is not.
 */
static __always_inline int is_about_us(struct cursor *cur, __be16 proto)
{
	struct match_address src = {}, dst = {};
	struct content content = {};

	if (proto == bpf_htons(ETH_P_ARP)) {
		struct arp copy, *arp;

		if (!LOOK(cur, &copy, arp) || arp->hardware != bpf_htons(ARP_ETHERNET) ||
		    arp->protocol != bpf_htons(ETH_P_IP) || arp->hardware_len != ETH_ALEN ||
		    arp->protocol_len != sizeof(arp->target_ip))
			return 0;
		return in_prefixes(&match_dst, address_v4(arp->target_ip));
	}
	if (parse_addresses(cur, proto, &src, &dst) != PARSED)
		return 0;
	/* A group: the target decides. Router advertisements have none, and are the host's. */
	if ((dst.high & bpf_htonl(0xff000000)) == bpf_htonl(0xff000000)) {
		struct neighbour copy, *message;

		if (parse_ip(cur, proto, &content) != PARSED || !LOOK(cur, &copy, message))
			return 0;
		if (message->type != ND_SOLICITATION && message->type != ND_ADVERTISEMENT)
			return 0;
		dst = address_v6(message->target);
	}
	return in_prefixes(&match_dst, dst);
}

/* Finds a TCP header's destination port; `cur` is where parse_ip() has left it. */
static __always_inline enum parsed parse_tcp(const struct cursor *cur,
					     const struct content *content, __be16 *port)
{
	struct tcphdr copy, *tcp;

	if (content->protocol != IPPROTO_TCP)
		return OTHER;
	if (content->length < (int)sizeof(*tcp) || !LOOK(cur, &copy, tcp))
		return MALFORMED;
	/* The options of a first fragment may end in another one. */
	if (tcp->doff < TCP_HEADER_WORDS ||
	    (!content->fragmented && tcp->doff * 4 > content->length))
		return MALFORMED;
	*port = tcp->dest;
	return PARSED;
}

static __always_inline enum parsed match_packet(struct xdp_md *ctx, enum access access)
{
	struct cursor cur = cursor_of(ctx, access);
	struct match_address src = {}, dst = {};
	struct content content = {};
	__be16 outer = 0, inner = 0, port = 0;
	enum parsed found;

	found = parse_ethernet(&cur, &outer, &inner);
	if (found != PARSED)
		return found;
	found = parse_addresses(&cur, inner, &src, &dst);
	if (found != PARSED)
		return found;
	if (match_dst.count && !in_prefixes(&match_dst, dst))
		return OTHER;
	if (match_src.count && !in_prefixes(&match_src, src))
		return OTHER;
	if (!match_ports.count && !match_icmp)
		return PARSED;
	found = parse_ip(&cur, inner, &content);
	if (found != PARSED)
		return found;
	if (match_icmp && content.protocol == (dst.version == 4 ? IPPROTO_ICMP : IPPROTO_ICMPV6))
		return PARSED;
	if (!match_ports.count)
		return OTHER;
	found = parse_tcp(&cur, &content, &port);
	if (found == OTHER)
		found = parse_udp(&cur, &content, &port);
	if (found != PARSED)
		return found;
	return in_ranges(content.protocol, bpf_ntohs(port)) ? PARSED : OTHER;
}

static __always_inline enum parsed match_neighbour(struct xdp_md *ctx, enum access access)
{
	struct cursor cur = cursor_of(ctx, access);
	__be16 outer = 0, inner = 0;

	if (parse_ethernet(&cur, &outer, &inner) != PARSED)
		return OTHER;
	return is_about_us(&cur, inner) ? PARSED : OTHER;
}

/*
 * Not inlined, for the registers: the other filters would pay for them. They begin
 * at the Ethernet header once more, because a cursor that is handed over lies in
 * memory.
 */
static __noinline enum parsed match_by_pointer(struct xdp_md *ctx, int is_neighbour)
{
	return is_neighbour ? match_neighbour(ctx, BY_POINTER) : match_packet(ctx, BY_POINTER);
}

static __noinline enum parsed match_at_fixed_places(struct xdp_md *ctx, int is_neighbour)
{
	return is_neighbour ? match_neighbour(ctx, AT_FIXED_PLACES) :
			      match_packet(ctx, AT_FIXED_PLACES);
}

static __noinline enum parsed match_by_helper(struct xdp_md *ctx, int is_neighbour)
{
	return is_neighbour ? match_neighbour(ctx, BY_HELPER) : match_packet(ctx, BY_HELPER);
}

/* PARSED: the packet, which does not contradict itself, matches. */
static __always_inline enum parsed match(struct xdp_md *ctx, enum access access, int is_neighbour)
{
	switch (access) {
	case BY_POINTER:
		return match_by_pointer(ctx, is_neighbour);
	case AT_FIXED_PLACES:
		return match_at_fixed_places(ctx, is_neighbour);
	default:
		return match_by_helper(ctx, is_neighbour);
	}
}

#endif
