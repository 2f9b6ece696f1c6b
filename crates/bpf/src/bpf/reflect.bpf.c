// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Sends packets back where they came from, out of the driver: the least that
 * forwarding and answering can cost on an interface.
 *
 * Two manners: any frame with its MAC addresses swapped, or probes only, with
 * IP addresses and UDP ports swapped too and turned from request into reply.
 */
#include "checksum.h"
#include "traffic.h"

/* 0: every frame, MAC addresses only. 1: probes, up to the kind of probe. */
const volatile __u32 echo_probes = 0;
/* Not 0: of frames, only UDP to this port. */
const volatile __u32 only_udp_port = 0;
/* A probe begins with these bytes ... */
const volatile __u64 magic = 0; /* big endian, left-aligned */
const volatile __u64 magic_mask = 0;
/* ... and tells its kind in the byte at this offset of the UDP payload. */
const volatile __u32 kind_offset = 0;
const volatile __u32 kind_request = 0;
const volatile __u32 kind_reply = 0;

static __always_inline void swap_macs(struct ethhdr *eth)
{
	__u8 mac[ETH_ALEN];

	__builtin_memcpy(mac, eth->h_source, ETH_ALEN);
	__builtin_memcpy(eth->h_source, eth->h_dest, ETH_ALEN);
	__builtin_memcpy(eth->h_dest, mac, ETH_ALEN);
}

/* RFC 768, RFC 8200, 8.1: addresses, protocol and UDP length, as in the packet's memory order. */
static __always_inline __u32 pseudo_sum(const __u16 *addresses, int words, __be16 length)
{
	__u32 sum = bpf_htons(IPPROTO_UDP) + length;

#pragma unroll
	for (int i = 0; i < 16; i++) {
		if (i < words)
			sum += addresses[i];
	}
	return fold(sum);
}

/*
 * Swapping addresses and ports does not change a ones' complement sum, only the
 * kind byte does: RFC 1624, equation 3. `odd`: the byte is the second of its word.
 */
static __always_inline void replace_kind(__u16 *check, __u8 before, __u8 after, int odd)
{
	__u32 sum = (__u16)~*check;

	sum += odd ? (__u16)~bpf_htons(before) & 0xffff : (__u16)~bpf_htons((__u16)before << 8);
	sum += odd ? bpf_htons(after) : bpf_htons((__u16)after << 8);
	*check = complement(fold(sum));
}

/* 1: the frame is now an answer. 0: it was no probe and is as it was. */
static __always_inline int answer(struct xdp_md *ctx, struct ethhdr *eth, struct cursor cur,
				  __be16 proto)
{
	void *network = cur.pos, *end = cur.end;
	struct content content = {};
	struct udphdr *udp;
	__u32 partial;
	__be64 *head;
	__be16 port;
	__u8 *kind;

	if (contradicts_itself(cur, proto) || parse_ip(&cur, proto, &content) != PARSED ||
	    parse_udp(&cur, &content, &port) != PARSED)
		return 0;
	udp = cur.pos;
	head = (__be64 *)(udp + 1);
	kind = (__u8 *)(udp + 1) + (kind_offset & 0xff);
	if (!FITS(head, end) || !FITS(kind, end))
		return 0;
	if ((*head & bpf_cpu_to_be64(magic_mask)) != bpf_cpu_to_be64(magic) ||
	    *kind != (__u8)kind_request)
		return 0;

	if (proto == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = network;
		__be32 address;

		/* Known already, but the verifier has forgotten. */
		if (!FITS(ip, end))
			return 0;
		address = ip->saddr;
		partial = pseudo_sum((__u16 *)&ip->saddr, 4, udp->len);
		ip->saddr = ip->daddr;
		ip->daddr = address;
	} else {
		struct ipv6hdr *ip6 = network;
		struct in6_addr address;

		if (!FITS(ip6, end))
			return 0;
		address = ip6->saddr;
		partial = pseudo_sum((__u16 *)&ip6->saddr, 16, udp->len);
		ip6->saddr = ip6->daddr;
		ip6->daddr = address;
	}
	port = udp->source;
	udp->source = udp->dest;
	udp->dest = port;

	if (udp->check == partial) {
		/*
		 * The sender left the checksum to its device, and a veth has nobody who
		 * would complete it: only the pseudo-header's sum is there. What leaves
		 * here has no such mark any more, so it is completed in software.
		 */
		int sum;

		*kind = (__u8)kind_reply;
		sum = sum_datagram(ctx, (void *)udp - (void *)eth, bpf_ntohs(udp->len));
		if (sum < 0)
			udp->check = 0;
		else
			udp->check = complement(sum);
	} else {
		/* 0: no checksum, which IPv4 allows. */
		if (udp->check)
			replace_kind(&udp->check, *kind, (__u8)kind_reply, kind_offset & 1);
		*kind = (__u8)kind_reply;
	}
	swap_macs(eth);
	return 1;
}

SEC("xdp")
int ringside_tx(struct xdp_md *ctx)
{
	struct traffic *seen = traffic();
	struct cursor cur = cursor_of(ctx, BY_POINTER);
	struct ethhdr *eth = cur.pos;
	__be16 outer, inner;

	if (!seen)
		return XDP_PASS;
	/* A group address can be no source, so a frame to one cannot be sent back. */
	if (parse_ethernet(&cur, &outer, &inner) != PARSED || (eth->h_dest[0] & 1) ||
	    parse_neighbour(cur, inner) == PARSED)
		goto pass;
	if (only_udp_port && !is_udp_to(ctx, only_udp_port))
		goto pass;
	if (!echo_probes)
		swap_macs(eth);
	else if (!answer(ctx, eth, cur, inner))
		goto pass;
	count(seen, ctx->data_end - ctx->data);
	return XDP_TX;
pass:
	seen->passed++;
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
