/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Bounds-checked packet parsing, shared by every program of this crate.
 *
 * Two users: the hot path only asks whether a frame belongs to the host's own
 * neighbour discovery (parse_neighbour), the filters ask for a transport header
 * (parse_udp, parse_echo_request). Nothing here trusts a length field before it
 * was compared with what is really in the buffer.
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

#define ICMP_ECHO_REQUEST 8
#define ICMP6_ECHO_REQUEST 128
#define ICMP_ECHO_LEN 8

#define FITS(header, end) ((void *)((header) + 1) <= (end))

#define IP_FRAGMENT_OFFSET 0x1fff
#define IP_MORE_FRAGMENTS 0x2000
#define IP6_FRAGMENT_OFFSET 0xfff8
#define IP6_MORE_FRAGMENTS 0x0001

struct vlan_header {
	__be16 tci;
	__be16 proto;
};

/* The first eight bytes of any extension header: RFC 8200, 4.3 to 4.6. */
struct extension {
	__u8 nexthdr;
	__u8 length; /* in units of eight bytes, the first not counted; unused in fragment headers */
	__be16 fragment;
	__be32 id;
};

/*
 * How to read a packet. Options of IPv4 and extension headers of IPv6 put what
 * follows at a place that the packet tells; but to move a packet pointer by what
 * was read, or to subtract one from another, takes CAP_PERFMON.
 *
 * BY_POINTER does both.
 * AT_FIXED_PLACES gives up on such packets: ELSEWHERE.
 * BY_HELPER copies each header with bpf_xdp_load_bytes().
 * The last two ask bpf_xdp_get_buff_len() for the length. Linux 5.18 has both.
 *
 * It is a constant of the compiler's, and what may not be set on some way is
 * initialised: without CAP_PERFMON the verifier also follows the ways that only
 * a guessing processor takes, into branches whose condition never holds. What it
 * dislikes there Linux 6.18 fences off, but 6.1 and 6.8 refuse: a change here is to
 * be tried on an older kernel too. (6.1, 6.8, 6.12 and 6.18 take what clang 14, 16
 * and 19 make of this.)
 * https://elixir.bootlin.com/linux/v6.18/C/ident/sanitize_speculative_path
 */
enum access {
	BY_POINTER,
	AT_FIXED_PLACES,
	BY_HELPER,
};

/* What is left of a packet. BY_HELPER goes by `offset`, the others by `pos`: the same place. */
struct cursor {
	struct xdp_md *ctx;
	enum access access;
	void *pos;
	void *end;
	__u64 offset;
	__u64 left; /* bytes from there on; BY_POINTER has `end` for it */
};

enum parsed {
	PARSED,	   /* what was asked for is there */
	OTHER,	   /* well formed, but something else */
	MALFORMED, /* shorter than it claims, or contradicts itself */
	ELSEWHERE, /* not at a fixed place */
};

static __always_inline struct cursor cursor_of(struct xdp_md *ctx, enum access access)
{
	struct cursor cur = {.ctx = ctx, .access = access};

	if (access != BY_POINTER)
		cur.left = bpf_xdp_get_buff_len(ctx);
	cur.pos = (void *)(long)ctx->data;
	cur.end = (void *)(long)ctx->data_end;
	return cur;
}

static __always_inline void step(struct cursor *cur, __u32 bytes)
{
	cur->pos += bytes;
	cur->offset += bytes;
	cur->left -= bytes;
}

/* How many bytes are left. */
static __always_inline __u64 left(const struct cursor *cur)
{
	return cur->access == BY_POINTER ? cur->end - cur->pos : cur->left;
}

/* Lets `header` point to the next `size` bytes: in the packet, or copied. 0: there are less. */
static __always_inline int look(const struct cursor *cur, __u32 size, void *copy, void **header)
{
	if (cur->access == BY_HELPER) {
		*header = copy;
		return !bpf_xdp_load_bytes(cur->ctx, cur->offset, copy, size);
	}
	*header = cur->pos;
	return cur->pos + size <= cur->end;
}

#define LOOK(cursor, copy, header) look(cursor, sizeof(*(header)), copy, (void **)&(header))

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
	struct ethhdr eth_copy, *eth;
	__be16 proto;

	if (!LOOK(cur, &eth_copy, eth))
		return MALFORMED;
	step(cur, sizeof(*eth));
	proto = eth->h_proto;
	*outer = proto;

#pragma unroll
	for (int i = 0; i < MAX_VLAN_TAGS; i++) {
		struct vlan_header tag_copy, *tag;

		if (!is_vlan(proto))
			break;
		if (!LOOK(cur, &tag_copy, tag))
			return MALFORMED;
		step(cur, sizeof(*tag));
		proto = tag->proto;
	}
	*inner = proto;
	return PARSED;
}

/* What an IP header and its extensions say about what follows them. */
struct content {
	__u8 protocol;
	int extended;	/* there are extension headers */
	int fragmented; /* the rest is in other packets */
	int length;	/* negative if they are longer than the packet claims to be */
};

static __always_inline int is_extension(__u8 nexthdr)
{
	return nexthdr == IPPROTO_HOPOPTS || nexthdr == IPPROTO_ROUTING ||
	       nexthdr == IPPROTO_DSTOPTS || nexthdr == IPPROTO_FRAGMENT;
}

/*
 * Steps over IPv6 extension headers to the transport header.
 * OTHER: a later fragment, or more headers than anyone uses.
 */
static __always_inline enum parsed skip_extensions(struct cursor *cur, struct content *content)
{
	struct extension copy, *ext;

	for (int i = 0; i < MAX_EXTENSIONS; i++) {
		__u32 length = sizeof(*ext);

		if (!is_extension(content->protocol))
			return PARSED;
		if (cur->access == AT_FIXED_PLACES)
			return ELSEWHERE;
		if (!LOOK(cur, &copy, ext))
			return MALFORMED;
		if (content->protocol != IPPROTO_FRAGMENT)
			length += ext->length * 8;
		else if (ext->fragment & bpf_htons(IP6_FRAGMENT_OFFSET))
			return OTHER;
		else
			content->fragmented = !!(ext->fragment & bpf_htons(IP6_MORE_FRAGMENTS));
		content->extended = 1;
		content->protocol = ext->nexthdr;
		content->length -= length;
		step(cur, length);
	}
	return is_extension(content->protocol) ? OTHER : PARSED;
}

/*
 * Steps over an IP header with its options or extension headers to the transport
 * header. What it claims is looked at by contradicts_itself(), not here.
 */
static __always_inline enum parsed parse_ip(struct cursor *cur, __be16 proto,
					    struct content *content)
{
	if (proto == bpf_htons(ETH_P_IP)) {
		struct iphdr copy, *ip;
		__u32 header_len = sizeof(*ip);

		if (!LOOK(cur, &copy, ip))
			return MALFORMED;
		/* Only the first fragment carries the transport header. */
		if (ip->frag_off & bpf_htons(IP_FRAGMENT_OFFSET))
			return OTHER;
		if (cur->access != AT_FIXED_PLACES)
			header_len = ip->ihl * 4;
		else if (ip->ihl != 5)
			return ELSEWHERE;
		content->protocol = ip->protocol;
		content->extended = 0;
		content->fragmented = !!(ip->frag_off & bpf_htons(IP_MORE_FRAGMENTS));
		content->length = bpf_ntohs(ip->tot_len) - header_len;
		step(cur, header_len);
		return PARSED;
	}
	if (proto == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr copy, *ip6;

		if (!LOOK(cur, &copy, ip6))
			return MALFORMED;
		content->protocol = ip6->nexthdr;
		content->extended = content->fragmented = 0;
		content->length = bpf_ntohs(ip6->payload_len);
		step(cur, sizeof(*ip6));
		return skip_extensions(cur, content);
	}
	return OTHER;
}

/*
 * ARP or IPv6 neighbour discovery: what a host needs to stay reachable, and
 * what is never kept from one that is an end of the link. PARSED means yes.
 */
static __always_inline enum parsed parse_neighbour(struct cursor cur, __be16 proto)
{
	struct content content = {};
	__u8 copy, *type;
	enum parsed found;

	if (proto == bpf_htons(ETH_P_ARP))
		return PARSED;
	if (proto != bpf_htons(ETH_P_IPV6))
		return OTHER;
	found = parse_ip(&cur, proto, &content);
	if (found != PARSED)
		return found;
	if (content.protocol != IPPROTO_ICMPV6)
		return OTHER;
	if (!LOOK(&cur, &copy, type))
		return MALFORMED;
	return *type >= ND_FIRST && *type <= ND_LAST ? PARSED : OTHER;
}

/*
 * Does the IP header claim what cannot be? `cur` is at it. Only what is at fixed
 * places, for this runs on every packet; what is not IP claims nothing.
 */
static __always_inline int contradicts_itself(struct cursor cur, __be16 proto)
{
	if (proto == bpf_htons(ETH_P_IP)) {
		struct iphdr copy, *ip;
		__u32 total;

		if (!LOOK(&cur, &copy, ip))
			return 1;
		total = bpf_ntohs(ip->tot_len);
		return ip->version != 4 || ip->ihl < 5 || total < ip->ihl * 4 || total > left(&cur);
	}
	if (proto == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr copy, *ip6;

		return !LOOK(&cur, &copy, ip6) || ip6->version != 6 ||
		       sizeof(*ip6) + bpf_ntohs(ip6->payload_len) > left(&cur);
	}
	return 0;
}

/*
 * Is this a whole ICMP or ICMPv6 echo request? `cur` is where parse_ip() has left
 * it. Extension headers and fragments are the host's business.
 */
static __always_inline enum parsed parse_echo_request(const struct cursor *cur, __be16 proto,
						      const struct content *content)
{
	int v4 = proto == bpf_htons(ETH_P_IP);
	__u8 copy, *type;

	if (content->protocol != (v4 ? IPPROTO_ICMP : IPPROTO_ICMPV6) || content->extended ||
	    content->fragmented)
		return OTHER;
	if (content->length < ICMP_ECHO_LEN || !LOOK(cur, &copy, type))
		return MALFORMED;
	return *type == (v4 ? ICMP_ECHO_REQUEST : ICMP6_ECHO_REQUEST) ? PARSED : OTHER;
}

/* Finds a UDP header's destination port; `cur` is where parse_ip() has left it. */
static __always_inline enum parsed parse_udp(const struct cursor *cur,
					     const struct content *content, __be16 *port)
{
	struct udphdr copy, *udp;
	int length;

	if (content->protocol != IPPROTO_UDP)
		return OTHER;
	if (content->length < (int)sizeof(*udp) || !LOOK(cur, &copy, udp))
		return MALFORMED;
	/* The length of a fragmented datagram is that of the whole, not of this part. */
	length = bpf_ntohs(udp->len);
	if (length < (int)sizeof(*udp) || (!content->fragmented && length > content->length))
		return MALFORMED;
	*port = udp->dest;
	return PARSED;
}

/* Is this UDP to this port, in host order? What cannot be told is not. */
static __always_inline int is_udp_to(struct xdp_md *ctx, __u16 wanted)
{
	struct cursor cur = cursor_of(ctx, BY_POINTER);
	struct content content = {};
	__be16 outer, inner, port;

	return parse_ethernet(&cur, &outer, &inner) == PARSED &&
	       parse_ip(&cur, inner, &content) == PARSED &&
	       parse_udp(&cur, &content, &port) == PARSED && port == bpf_htons(wanted);
}

#endif
