// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Sends what comes in on an interface out of another one, from one driver to the
 * other: the stack, its bridges and its queues see none of it.
 *
 * All packets, or an express lane: those with a VLAN priority, or UDP to a port.
 * The rest is the kernel's as before.
 */
#include "checksum.h"
#include "traffic.h"

#define TCP_CHECK 16
#define UDP_CHECK 6

/* Not 0: frames with a VLAN priority (PCP) of this or more are meant ... */
const volatile __u32 least_priority = 0;
/* ... and UDP to this port. Neither: all. */
const volatile __u32 only_udp_port = 0;

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} target SEC(".maps");

/* RFC 768, RFC 9293, 3.1, RFC 8200, 8.1: addresses, protocol and length, in the packet's memory order. */
static __always_inline __u32 pseudo_sum(const __u16 *addresses, int words, __u8 protocol, __u16 length)
{
	__u32 sum = bpf_htons(protocol) + bpf_htons(length);

#pragma unroll
	for (int i = 0; i < 16; i++) {
		if (i < words)
			sum += addresses[i];
	}
	return fold(sum);
}

/*
 * A sender on this machine may leave UDP and TCP checksums to its device: then there is the pseudo-header's sum alone, and a note
 * in the socket buffer. What is redirected has no socket buffer, and the note is lost; the receiver would throw it away.
 *
 * A whole checksum that happens to look like that comes out as it was.
 */
static __always_inline void complete_checksum(struct xdp_md *ctx)
{
	struct cursor cur = cursor_of(ctx, BY_POINTER);
	void *frame = cur.pos, *network, *end = cur.end;
	struct content content = {};
	__be16 outer, inner;
	__u32 partial, offset;
	__u16 *check;
	int sum;

	if (parse_ethernet(&cur, &outer, &inner) != PARSED || contradicts_itself(cur, inner))
		return;
	network = cur.pos;
	if (parse_ip(&cur, inner, &content) != PARSED || content.fragmented)
		return;
	if (content.protocol == IPPROTO_TCP)
		offset = TCP_CHECK;
	else if (content.protocol == IPPROTO_UDP)
		offset = UDP_CHECK;
	else
		return;
	check = cur.pos + offset;
	if (!FITS(check, end) || content.length < 0 || content.length > 2 * MAX_CHECKSUM_WORDS)
		return;
	if (inner == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = network;

		/* Known already, but the verifier has forgotten. */
		if (!FITS(ip, end))
			return;
		partial = pseudo_sum((__u16 *)&ip->saddr, 4, content.protocol, content.length);
	} else {
		struct ipv6hdr *ip6 = network;

		if (!FITS(ip6, end))
			return;
		partial = pseudo_sum((__u16 *)&ip6->saddr, 16, content.protocol, content.length);
	}
	if (*check != partial)
		return;
	sum = sum_datagram(ctx, cur.pos - frame, content.length);
	if (sum >= 0)
		*check = complement(sum);
}

static __always_inline int is_meant(struct xdp_md *ctx)
{
	if (!least_priority && !only_udp_port)
		return 1;
	if (least_priority) {
		struct ethhdr *eth = (void *)(long)ctx->data;
		struct vlan_header *tag = (void *)(eth + 1);

		if (FITS(tag, (void *)(long)ctx->data_end) && is_vlan(eth->h_proto) &&
		    bpf_ntohs(tag->tci) >> 13 >= least_priority)
			return 1;
	}
	return only_udp_port && is_udp_to(ctx, only_udp_port);
}

static __always_inline int redirect(struct xdp_md *ctx)
{
	struct traffic *seen = traffic();
	__u32 length = ctx->data_end - ctx->data;

	if (!seen)
		return XDP_PASS;
	/* In several buffers: longer than the other interface sends, and no driver of a virtual one takes them. */
	if (bpf_xdp_get_buff_len(ctx) != length || !is_meant(ctx)) {
		seen->passed++;
		return XDP_PASS;
	}
	complete_checksum(ctx);
	count(seen, length);
	/* XDP_PASS while there is no such interface. */
	return bpf_redirect_map(&target, 0, XDP_PASS);
}

SEC("xdp")
int ringside_redir(struct xdp_md *ctx)
{
	return redirect(ctx);
}

/* For interfaces whose senders are to go on sending long packets (TSO) that are none of this program's. */
SEC("xdp.frags")
int ringside_expr(struct xdp_md *ctx)
{
	return redirect(ctx);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
