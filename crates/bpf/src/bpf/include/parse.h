/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Bounds-checked packet parsing, shared by every program of this crate.
 *
 * Two users: the hot path only asks whether a frame belongs to the host's own
 * neighbour discovery (is_neighbour), the filters ask for a UDP header
 * (parse_udp). Nothing here trusts a length field before it was compared with
 * what is really in the buffer.
 */
#ifndef RINGSIDE_PARSE_H
#define RINGSIDE_PARSE_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* Two tags are 802.1ad (QinQ); more than that is not in use. */
#define MAX_VLAN_TAGS 2
/* RFC 8200, 4.1: hop-by-hop, destination, routing, fragment is the order asked for. */
#define MAX_EXTENSIONS 4

/* Neighbour discovery: RFC 4861, 4; RFC 4890, 4.4.1 asks never to drop these. */
#define ND_FIRST 133 /* router solicitation */
#define ND_LAST 137  /* redirect */

#define IP_FRAGMENT_OFFSET 0x1fff
#define IP_MORE_FRAGMENTS 0x2000
#define IP6_FRAGMENT_OFFSET 0xfff8
#define IP6_MORE_FRAGMENTS 0x0001

struct vlan_header {
	__be16 tci;
	__be16 proto;
};

struct fragment_header {
	__u8 nexthdr;
	__u8 reserved;
	__be16 offset;
	__be32 id;
};

/* What is left of a packet: `pos` moves, `end` does not. */
struct cursor {
	void *pos;
	void *end;
};

enum parsed {
	PARSED,	   /* what was asked for is there */
	OTHER,	   /* well formed, but something else */
	MALFORMED, /* shorter than it claims, or contradicts itself */
};

#define FITS(cursor, header) ((void *)((header) + 1) <= (cursor)->end)

static __always_inline struct cursor cursor_of(const struct xdp_md *ctx)
{
	return (struct cursor){
		.pos = (void *)(long)ctx->data,
		.end = (void *)(long)ctx->data_end,
	};
}

static __always_inline int is_vlan(__be16 proto)
{
	return proto == bpf_htons(ETH_P_8021Q) || proto == bpf_htons(ETH_P_8021AD);
}

/*
 * Steps over the Ethernet header and up to two VLAN tags.
 * `outer` is the type in the Ethernet header, `inner` the one behind the tags.
 */
static __always_inline enum parsed parse_ethernet(struct cursor *cur, __be16 *outer, __be16 *inner)
{
	struct ethhdr *eth = cur->pos;
	__be16 proto;

	if (!FITS(cur, eth))
		return MALFORMED;
	cur->pos = eth + 1;
	proto = eth->h_proto;
	*outer = proto;

#pragma unroll
	for (int i = 0; i < MAX_VLAN_TAGS; i++) {
		struct vlan_header *tag = cur->pos;

		if (!is_vlan(proto))
			break;
		if (!FITS(cur, tag))
			return MALFORMED;
		cur->pos = tag + 1;
		proto = tag->proto;
	}
	*inner = proto;
	return PARSED;
}

static __always_inline int is_extension(__u8 nexthdr)
{
	return nexthdr == IPPROTO_HOPOPTS || nexthdr == IPPROTO_ROUTING ||
	       nexthdr == IPPROTO_DSTOPTS || nexthdr == IPPROTO_FRAGMENT;
}

/*
 * Walks IPv6 extension headers from `nexthdr` to the transport header.
 * OTHER: a later fragment, or more headers than anyone uses.
 */
static __always_inline enum parsed skip_extensions(struct cursor *cur, __u8 *nexthdr,
						   int *fragmented)
{
	for (int i = 0; i < MAX_EXTENSIONS; i++) {
		struct ipv6_opt_hdr *ext = cur->pos;

		if (!is_extension(*nexthdr))
			return PARSED;
		if (*nexthdr == IPPROTO_FRAGMENT) {
			struct fragment_header *frag = cur->pos;

			if (!FITS(cur, frag))
				return MALFORMED;
			if (frag->offset & bpf_htons(IP6_FRAGMENT_OFFSET))
				return OTHER;
			*fragmented = !!(frag->offset & bpf_htons(IP6_MORE_FRAGMENTS));
			*nexthdr = frag->nexthdr;
			cur->pos = frag + 1;
			continue;
		}
		if (!FITS(cur, ext))
			return MALFORMED;
		*nexthdr = ext->nexthdr;
		/* RFC 8200, 4.3: units of eight bytes, the first not counted. */
		cur->pos += ((__u32)ext->hdrlen + 1) * 8;
	}
	return is_extension(*nexthdr) ? OTHER : PARSED;
}

/*
 * Is this IPv6 packet neighbour discovery? `cur` is at the IPv6 header.
 * PARSED means yes.
 */
static __always_inline enum parsed parse_nd(struct cursor cur)
{
	struct ipv6hdr *ip6 = cur.pos;
	int fragmented = 0;
	__u8 nexthdr, *type;
	enum parsed found;

	if (!FITS(&cur, ip6))
		return MALFORMED;
	cur.pos = ip6 + 1;
	nexthdr = ip6->nexthdr;
	if (is_extension(nexthdr)) {
		found = skip_extensions(&cur, &nexthdr, &fragmented);
		if (found != PARSED)
			return found;
	}
	if (nexthdr != IPPROTO_ICMPV6)
		return OTHER;
	type = cur.pos;
	if (!FITS(&cur, type))
		return MALFORMED;
	return *type >= ND_FIRST && *type <= ND_LAST ? PARSED : OTHER;
}

/*
 * ARP or IPv6 neighbour discovery: what a host needs to stay reachable, and
 * what no program of this crate ever keeps from it. PARSED means yes.
 */
static __always_inline enum parsed parse_neighbour(struct cursor cur, __be16 proto)
{
	if (proto == bpf_htons(ETH_P_ARP))
		return PARSED;
	if (proto != bpf_htons(ETH_P_IPV6))
		return OTHER;
	return parse_nd(cur);
}

/* Steps over an IPv4 header; what follows in `cur` is cut at the packet's own length. */
static __always_inline enum parsed parse_ipv4(struct cursor *cur, struct iphdr **header,
					      __u32 *payload, int *fragmented)
{
	struct iphdr *ip = cur->pos;
	__u32 header_len, total;

	if (!FITS(cur, ip))
		return MALFORMED;
	header_len = ip->ihl * 4;
	total = bpf_ntohs(ip->tot_len);
	if (ip->version != 4 || header_len < sizeof(*ip) || total < header_len ||
	    cur->pos + total > cur->end)
		return MALFORMED;
	/* Only the first fragment carries the ports. */
	if (ip->frag_off & bpf_htons(IP_FRAGMENT_OFFSET))
		return OTHER;
	*fragmented = !!(ip->frag_off & bpf_htons(IP_MORE_FRAGMENTS));
	*payload = total - header_len;
	*header = ip;
	cur->pos += header_len;
	return PARSED;
}

/*
 * Does the IP header claim what cannot be? `cur` is at it. Only what is at fixed
 * places, for this runs on every packet; what is not IP claims nothing.
 */
static __always_inline int contradicts_itself(struct cursor cur, __be16 proto)
{
	if (proto == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = cur.pos;
		__u32 total;

		if (!FITS(&cur, ip))
			return 1;
		total = bpf_ntohs(ip->tot_len);
		return ip->version != 4 || ip->ihl < 5 || total < ip->ihl * 4 ||
		       cur.pos + total > cur.end;
	}
	if (proto == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip6 = cur.pos;

		/* Too short for a header: parse_neighbour() has said so. */
		return !FITS(&cur, ip6) || ip6->version != 6 ||
		       cur.pos + sizeof(*ip6) + bpf_ntohs(ip6->payload_len) > cur.end;
	}
	return 0;
}

#define ICMP_ECHO_REQUEST 8
#define ICMP6_ECHO_REQUEST 128
#define ICMP_ECHO_LEN 8

/*
 * Is this a whole ICMP or ICMPv6 echo request? `cur` is behind the link header.
 * Extension headers and fragments are the host's business.
 */
static __always_inline enum parsed parse_echo_request(struct cursor cur, __be16 proto)
{
	__u8 *type, wanted;
	__u32 payload;

	if (proto == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip;
		int fragmented;
		enum parsed found = parse_ipv4(&cur, &ip, &payload, &fragmented);

		if (found != PARSED)
			return found;
		if (ip->protocol != IPPROTO_ICMP || fragmented)
			return OTHER;
		wanted = ICMP_ECHO_REQUEST;
	} else if (proto == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip6 = cur.pos;

		if (!FITS(&cur, ip6))
			return MALFORMED;
		if (ip6->nexthdr != IPPROTO_ICMPV6)
			return OTHER;
		cur.pos = ip6 + 1;
		payload = bpf_ntohs(ip6->payload_len);
		wanted = ICMP6_ECHO_REQUEST;
	} else {
		return OTHER;
	}
	type = cur.pos;
	if (payload < ICMP_ECHO_LEN || !FITS(&cur, type))
		return MALFORMED;
	return *type == wanted ? PARSED : OTHER;
}

/*
 * Finds the UDP header of an IPv4 or IPv6 packet; `cur` is behind the link
 * header and ends up behind the UDP header.
 */
static __always_inline enum parsed parse_udp(struct cursor *cur, __be16 proto, struct udphdr **udp)
{
	int fragmented = 0;
	enum parsed found;
	struct udphdr *header;
	__u32 payload, length;

	if (proto == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip;

		found = parse_ipv4(cur, &ip, &payload, &fragmented);
		if (found != PARSED)
			return found;
		if (ip->protocol != IPPROTO_UDP)
			return OTHER;
	} else if (proto == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip6 = cur->pos;
		__u32 extensions;
		void *start;
		__u8 nexthdr;

		if (!FITS(cur, ip6))
			return MALFORMED;
		payload = bpf_ntohs(ip6->payload_len);
		start = ip6 + 1;
		if (ip6->version != 6 || start + payload > cur->end)
			return MALFORMED;
		nexthdr = ip6->nexthdr;
		cur->pos = start;
		found = skip_extensions(cur, &nexthdr, &fragmented);
		if (found != PARSED)
			return found;
		if (nexthdr != IPPROTO_UDP)
			return OTHER;
		extensions = cur->pos - start;
		if (extensions > payload)
			return MALFORMED;
		payload -= extensions;
	} else {
		return OTHER;
	}

	header = cur->pos;
	if (payload < sizeof(*header) || !FITS(cur, header))
		return MALFORMED;
	/* The length of a fragmented datagram is that of the whole, not of this part. */
	length = bpf_ntohs(header->len);
	if (length < sizeof(*header) || (!fragmented && length > payload))
		return MALFORMED;
	*udp = header;
	cur->pos = header + 1;
	return PARSED;
}

#endif
