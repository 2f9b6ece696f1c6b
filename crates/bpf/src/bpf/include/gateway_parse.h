/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What a frame is: the kernel's, damaged, or a tenant's. The same rules as
 * Packet::classify() in crates/gateway-core/src/packet.rs, in the same order.
 *
 * Lengths are compared with what the header before claims; only the packet's
 * outermost claim is compared with what is there. With xdp.frags what is there may
 * be in several buffers, and only the first can be looked into: headers that are
 * not in it are a worker's business (SLOW_HEADERS). No driver puts less than the
 * outer headers there; if one did, the packet would be the kernel's.
 */
#ifndef RINGSIDE_GATEWAY_PARSE_H
#define RINGSIDE_GATEWAY_PARSE_H

#include "checksum.h"
#include "gateway.h"

#define TUNNEL_HEADER_LEN 8
#define VXLAN_VALID 0x08
#define GENEVE_CONTROL 0x80
#define OPTION_CRITICAL 0x80
#define ETH_P_TRANSPARENT 0x6558
#define IP4_ADDRESS_ANY_OF_MANY 0xe0 /* 224.0.0.0/4 */
#define ARP_REQUEST 1
#define ND_SOLICITATION 135
/* What is decided about here: a solicitation with one option of eight bytes. */
#define SOLICITATION_LEN 32

/* ARP for IPv4 on Ethernet. Addresses are at odd words. */
struct arp {
	__be16 hardware;
	__be16 protocol;
	__u8 lengths[2];
	__be16 operation;
	__u8 sender_mac[ETH_ALEN];
	__be16 sender[2];
	__u8 target_mac[ETH_ALEN];
	__be16 target[2];
};

/* Neighbour solicitation and advertisement with one option, RFC 4861 4.3, 4.4. */
struct discovery {
	__u8 type;
	__u8 code;
	__u16 check;
	__u8 flags;
	__u8 reserved[3];
	__be32 target[4];
	__u8 option;
	__u8 units;
	__u8 mac[ETH_ALEN];
};

struct tunnel {
	__u8 flags; /* VXLAN: flags; Geneve: version, length of options */
	__u8 control;
	__be16 protocol;
	__be32 vni; /* in the upper three bytes; the last is reserved */
};

enum carried {
	NOTHING,
	IP4,
	IP6,
	ARP,
	DISCOVERY,
};

#define CONTENT_SHIFT 24

/*
 * A packet in numbers: what one step of the long way tells the next. Each step is a
 * function that is not static, which the verifier proves by itself, once, whatever came
 * before: all of them as one are too many ways for Linux 6.1. Pointers into packets
 * cannot be handed to such functions. They are made again of `udp`, `inner` and
 * `network`, which count from the frame's beginning: open_packet().
 */
struct found {
	__u32 told_network; /* the VNI; more than 24 bits: not known. Told however far the packet was read, */
	__u32 told_place;   /* as this: of the tenant's addresses, and above CONTENT_SHIFT what has them; 0: not known */
	__u16 udp;
	__u16 inner;
	__u16 network;
	__u8 encapsulation;
	__u8 content;	   /* enum carried */
	__u32 length;	   /* of the outer IP packet, without what follows the datagram */
	__u32 total;	   /* of the outer IP packet, as it says */
	__u32 inner_len;   /* of the tenant's frame */
	__u32 network_len; /* of what follows its Ethernet header */
	__u32 vni;
	__u32 v6;	   /* outer */
	__u32 has_options; /* of IPv4 or Geneve, in the outer headers */
};

/* Where everything is. Pointers are into the first buffer, and checked as far as their headers go. */
struct packet {
	void *data;
	void *end;
	void *ip; /* outer */
	struct udphdr *udp;
	struct tunnel *tunnel;
	struct ethhdr *inner;
	void *network;
};

/* More than all headers up to what the tenant's packet carries: 14 + 60 + 8 + 8 + 252 + 14 + 8 + 60. */
#define PLACES 0x1ff

/*
 * The same pointers again, in another step. False: the headers are not there. They are,
 * for they have been found: this is the verifier's.
 */
static __always_inline int open_packet(struct xdp_md *ctx, const struct found *found,
				       struct packet *packet)
{
	packet->data = (void *)(long)ctx->data;
	packet->end = (void *)(long)ctx->data_end;
	packet->ip = packet->data + sizeof(struct ethhdr);
	packet->udp = packet->data + (found->udp & PLACES);
	packet->tunnel = (void *)(packet->udp + 1);
	packet->inner = packet->data + (found->inner & PLACES);
	packet->network = packet->data + (found->network & PLACES);
	/* An outer header of IPv4 has UDP's and the tunnel's behind it, and is with them as long as one of IPv6. */
	return packet->ip + sizeof(struct ipv6hdr) <= packet->end &&
	       FITS(packet->tunnel, packet->end) && FITS(packet->inner, packet->end) &&
	       packet->network + sizeof(struct iphdr) <= packet->end;
}

/* The same of a tenant's header of IPv6. */
static __always_inline int has_ipv6(const struct packet *packet)
{
	return packet->network + sizeof(struct ipv6hdr) <= packet->end;
}

/* Bytes that the packet has, if `wanted` are not in the first buffer. */
static __always_inline __u64 available(struct xdp_md *ctx, const struct packet *packet, __u64 wanted)
{
	__u64 linear = packet->end - packet->data;

	return wanted <= linear ? linear : bpf_xdp_get_buff_len(ctx);
}

static __always_inline int is_own_v4(const struct config *config, __be32 address)
{
	for (__u32 i = 0; i < MOST_ADDRESSES; i++) {
		if (i >= config->v4_count)
			break;
		if (config->v4[i] == address)
			return 1;
	}
	return 0;
}

/* The kernel's struct is packed, and the compiler would go byte by byte. */
static __always_inline __be16 type_of(const struct ethhdr *eth)
{
	return *(const __be16 *)((const void *)eth + 2 * ETH_ALEN);
}

static __always_inline void copy_mac(__u8 *to, const __u8 *from)
{
	*(__u32 *)to = *(const __u32 *)from;
	*(__u16 *)(to + 4) = *(const __u16 *)(from + 4);
}

static __always_inline int same_mac(const __u8 *a, const __u8 *b)
{
	return !((*(__u32 *)a ^ *(__u32 *)b) | (*(__u16 *)(a + 4) ^ *(__u16 *)(b + 4)));
}

static __always_inline int same_v6(const __be32 *a, const __be32 *b)
{
	return !((a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2]) | (a[3] ^ b[3]));
}

static __always_inline int is_own_v6(const struct config *config, const __be32 *address)
{
	for (__u32 i = 0; i < MOST_ADDRESSES; i++) {
		if (i >= config->v6_count)
			break;
		if (same_v6(config->v6[i], address))
			return 1;
	}
	return 0;
}

enum options {
	OPTIONS_FINE,
	OPTIONS_MALFORMED,
	OPTIONS_UNKNOWN, /* one is critical and not known */
	OPTIONS_ELSEWHERE,
};

/* Seldom asked. */
__noinline int is_known(const struct config *config, __u32 option)
{
	__be16 class = bpf_htons(option >> 16);

	if (!config)
		return 0;
	for (__u32 i = 0; i < MOST_OPTIONS; i++) {
		if (i >= config->option_count)
			break;
		if (config->options[i].class == class &&
		    config->options[i].type == (__u8)(option >> 8))
			return 1;
	}
	return 0;
}

/* Walks over Geneve options. Not static, for the verifier to look at the loop once. */
__noinline int walk_options(struct xdp_md *ctx, const struct config *config, __u32 start,
			    __u32 length)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	int found = OPTIONS_FINE;
	__u32 at = 0;

	if (!config || start > 128 || length > 252)
		return OPTIONS_ELSEWHERE;
	for (int i = 0; i < 63; i++) {
		__be32 *option;
		__u32 head;

		if (at >= length)
			break;
		option = data + start + at;
		if (!FITS(option, end))
			return OPTIONS_ELSEWHERE;
		head = bpf_ntohl(*option);
		at += 4 + (head & 0x1f) * 4;
		if (at > length)
			return OPTIONS_MALFORMED;
		if ((head & (OPTION_CRITICAL << 8)) && !is_known(config, head))
			found = OPTIONS_UNKNOWN;
	}
	return found;
}

/* The outer headers. TENANT: as far as the tunnel's. */
static __always_inline __u32 parse_outer(struct xdp_md *ctx, const struct config *config,
					 struct packet *packet, struct found *found,
					 __u32 *left)
{
	struct ethhdr *eth = packet->data;
	int first_fragment = 0;
	__u32 payload, length;
	struct udphdr *udp;

	if (!FITS(eth, packet->end))
		return PASSED;
	packet->ip = eth + 1;
	if (type_of(eth) == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = packet->ip;
		__u32 header_len, total;

		if (!FITS(ip, packet->end))
			return PASSED;
		header_len = ip->ihl * 4;
		total = bpf_ntohs(ip->tot_len);
		if (ip->version != 4 || ip->ihl < 5 || ip->protocol != IPPROTO_UDP ||
		    (ip->frag_off & bpf_htons(IP_FRAGMENT_OFFSET)) ||
		    total < header_len + sizeof(*udp) ||
		    sizeof(*eth) + total > available(ctx, packet, sizeof(*eth) + total))
			return PASSED;
		udp = packet->ip + header_len;
		if (!FITS(udp, packet->end) || !is_own_v4(config, ip->daddr))
			return PASSED;
		first_fragment = ip->frag_off & bpf_htons(IP_MORE_FRAGMENTS);
		payload = total - header_len;
		found->length = header_len;
		found->total = total;
		found->has_options = header_len != sizeof(*ip);
	} else if (type_of(eth) == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip6 = packet->ip;
		__u32 total;

		if (!FITS(ip6, packet->end))
			return PASSED;
		payload = bpf_ntohs(ip6->payload_len);
		total = sizeof(*eth) + sizeof(*ip6) + payload;
		if (ip6->version != 6 || ip6->nexthdr != IPPROTO_UDP || payload < sizeof(*udp) ||
		    total > available(ctx, packet, total))
			return PASSED;
		udp = (void *)(ip6 + 1);
		if (!FITS(udp, packet->end) || !is_own_v6(config, (__be32 *)&ip6->daddr))
			return PASSED;
		found->v6 = 1;
		found->length = sizeof(*ip6);
		found->total = sizeof(*ip6) + payload;
	} else {
		return PASSED;
	}
	if (udp->dest == config->vxlan_port)
		found->encapsulation = VXLAN;
	else if (udp->dest == config->geneve_port)
		found->encapsulation = GENEVE;
	else
		return PASSED;
	if (first_fragment)
		return DROP_OUTER_FRAGMENT;
	length = bpf_ntohs(udp->len);
	if (length < sizeof(*udp) || length > payload)
		return DROP_OUTER_MALFORMED;
	found->length += length;
	packet->udp = udp;
	*left = length - sizeof(*udp);
	return TENANT;
}

/* The tunnel header: the tenant's frame begins behind it. */
static __always_inline __u32 parse_tunnel(struct xdp_md *ctx, const struct config *config,
					  struct packet *packet, struct found *found,
					  __u32 *left)
{
	struct tunnel *tunnel = (void *)(packet->udp + 1);
	int geneve = found->encapsulation == GENEVE;
	__u32 options = 0;

	if (*left < TUNNEL_HEADER_LEN)
		return geneve ? DROP_GENEVE_MALFORMED : DROP_OUTER_MALFORMED;
	if (!FITS(tunnel, packet->end))
		return SLOW_HEADERS;
	packet->tunnel = tunnel;
	found->vni = bpf_ntohl(tunnel->vni) >> 8;
	if (!geneve) {
		if (!(tunnel->flags & VXLAN_VALID))
			return DROP_VXLAN_FLAGS;
	} else {
		int found = OPTIONS_FINE;

		if (tunnel->flags >> 6)
			return DROP_GENEVE_VERSION;
		options = (tunnel->flags & 0x3f) * 4;
		if (TUNNEL_HEADER_LEN + options > *left)
			return DROP_GENEVE_MALFORMED;
		if (options)
			found = walk_options(ctx, config, (void *)(tunnel + 1) - packet->data, options);
		if (found == OPTIONS_ELSEWHERE)
			return SLOW_HEADERS;
		if (found == OPTIONS_MALFORMED)
			return DROP_GENEVE_MALFORMED;
		if (tunnel->control & GENEVE_CONTROL)
			return DROP_GENEVE_CONTROL;
		if (found == OPTIONS_UNKNOWN)
			return DROP_GENEVE_CRITICAL;
		if (tunnel->protocol != bpf_htons(ETH_P_TRANSPARENT))
			return DROP_GENEVE_PROTOCOL;
	}
	found->has_options |= !!options;
	packet->inner = (void *)(tunnel + 1) + options;
	*left -= TUNNEL_HEADER_LEN + options;
	found->inner_len = *left;
	return TENANT;
}

static __always_inline __u32 parse_arp(const struct packet *packet, struct found *found)
{
	struct arp *arp = packet->network;

	if (found->network_len < sizeof(*arp))
		return DROP_INNER_MALFORMED;
	if (!FITS(arp, packet->end))
		return SLOW_HEADERS;
	/* An announcement asks for its own address. */
	if (arp->hardware != bpf_htons(1) || arp->protocol != bpf_htons(ETH_P_IP) ||
	    arp->lengths[0] != ETH_ALEN || arp->lengths[1] != 4 ||
	    arp->operation != bpf_htons(ARP_REQUEST) ||
	    (arp->sender[0] == arp->target[0] && arp->sender[1] == arp->target[1]))
		return DROP_ARP_NOT_ASKED;
	found->content = ARP;
	return TENANT;
}

static __always_inline __u32 parse_inner_v4(const struct packet *packet, struct found *found)
{
	struct iphdr *ip = packet->network;
	__u32 total;

	if (found->network_len < sizeof(*ip))
		return DROP_INNER_MALFORMED;
	if (!FITS(ip, packet->end))
		return SLOW_HEADERS;
	total = bpf_ntohs(ip->tot_len);
	if (ip->version != 4 || ip->ihl < 5 || total < ip->ihl * 4 || total > found->network_len)
		return DROP_INNER_MALFORMED;
	if ((packet->inner->h_dest[0] & 1) || ip->daddr == 0xffffffff ||
	    (*(__u8 *)&ip->daddr & 0xf0) == IP4_ADDRESS_ANY_OF_MANY)
		return DROP_INNER_MULTICAST;
	found->content = IP4;
	return TENANT;
}

/* The conditions of RFC 4861, 7.1.1, as far as they are simple. */
static __always_inline __u32 parse_solicitation(struct xdp_md *ctx, const struct packet *packet,
						struct found *found, struct ipv6hdr *ip6)
{
	struct discovery *asked = (void *)(ip6 + 1);
	__u64 pseudo;
	int sum;

	if (ip6->hop_limit != 255)
		return DROP_DISCOVERY_MALFORMED;
	/* Who has no address yet asks all, by other rules. */
	if (ip6->payload_len != bpf_htons(SOLICITATION_LEN) ||
	    !(ip6->saddr.s6_addr32[0] | ip6->saddr.s6_addr32[1] | ip6->saddr.s6_addr32[2] |
	      ip6->saddr.s6_addr32[3]))
		return SLOW_QUESTION;
	if (!FITS(asked, packet->end))
		return SLOW_HEADERS;
	pseudo = bpf_htons(SOLICITATION_LEN) + bpf_htons(IPPROTO_ICMPV6);
#pragma unroll
	for (int i = 0; i < 4; i++)
		pseudo += (__u64)ip6->saddr.s6_addr32[i] + ip6->daddr.s6_addr32[i];
	sum = sum_datagram(ctx, (void *)asked - packet->data, SOLICITATION_LEN);
	if (sum < 0)
		return SLOW_HEADERS;
	/* A longer option would be cut off. */
	if (fold_wide(pseudo + sum) != 0xffff || asked->code ||
	    (*(__u8 *)asked->target == 0xff) || asked->units != 1)
		return DROP_DISCOVERY_MALFORMED;
	found->content = DISCOVERY;
	return TENANT;
}

static __always_inline __u32 parse_inner_v6(struct xdp_md *ctx, const struct packet *packet,
					    struct found *found)
{
	struct ipv6hdr *ip6 = packet->network;
	__u32 payload;
	int to_many;

	if (found->network_len < sizeof(*ip6))
		return DROP_INNER_MALFORMED;
	if (!FITS(ip6, packet->end))
		return SLOW_HEADERS;
	payload = bpf_ntohs(ip6->payload_len);
	if (ip6->version != 6 || payload > found->network_len - sizeof(*ip6))
		return DROP_INNER_MALFORMED;
	to_many = ip6->daddr.s6_addr[0] == 0xff;
	if (ip6->nexthdr == IPPROTO_ICMPV6 && payload) {
		__u8 *type = (void *)(ip6 + 1);

		if (!FITS(type, packet->end))
			return SLOW_HEADERS;
		if (*type == ND_SOLICITATION)
			return parse_solicitation(ctx, packet, found, ip6);
		if (*type >= ND_FIRST && *type <= ND_LAST && to_many)
			return DROP_DISCOVERY_NOT_ASKED;
	}
	if (to_many || (packet->inner->h_dest[0] & 1))
		return DROP_INNER_MULTICAST;
	found->content = IP6;
	return TENANT;
}

/* The tenant's frame. */
static __always_inline __u32 parse_tenant(struct xdp_md *ctx, struct packet *packet,
					  struct found *found, __u32 left)
{
	__u32 header_len = sizeof(struct ethhdr);
	__be16 proto;

	if (left < header_len)
		return DROP_INNER_MALFORMED;
	if (!FITS(packet->inner, packet->end))
		return SLOW_HEADERS;
	proto = type_of(packet->inner);
	packet->network = packet->inner + 1;
#pragma unroll
	for (int i = 0; i < MAX_VLAN_TAGS; i++) {
		struct vlan_header *tag = packet->network;

		if (!is_vlan(proto))
			break;
		header_len += sizeof(*tag);
		if (left < header_len)
			return DROP_INNER_MALFORMED;
		if (!FITS(tag, packet->end))
			return SLOW_HEADERS;
		proto = tag->proto;
		packet->network = tag + 1;
	}
	found->network_len = left - header_len;
	if (proto == bpf_htons(ETH_P_ARP))
		return parse_arp(packet, found);
	if (proto == bpf_htons(ETH_P_IP))
		return parse_inner_v4(packet, found);
	if (proto == bpf_htons(ETH_P_IPV6))
		return parse_inner_v6(ctx, packet, found);
	return DROP_INNER_PROTOCOL;
}

/* A step: all but the first fields of `found` count where it says TENANT. */
__noinline int classify(struct xdp_md *ctx, const struct config *config, struct found *found)
{
	struct packet packet = {};
	__u32 outcome, left = 0;

	if (!config || !found)
		return PASSED;
	packet.data = (void *)(long)ctx->data;
	packet.end = (void *)(long)ctx->data_end;
	outcome = parse_outer(ctx, config, &packet, found, &left);
	if (outcome != TENANT)
		return outcome;
	outcome = parse_tunnel(ctx, config, &packet, found, &left);
	if (outcome != TENANT)
		return outcome;
	found->told_network = found->vni;
	outcome = parse_tenant(ctx, &packet, found, left);
	if (outcome != TENANT)
		return outcome;
	found->udp = (void *)packet.udp - packet.data;
	found->inner = (void *)packet.inner - packet.data;
	found->network = packet.network - packet.data;
	found->told_place = found->content << CONTENT_SHIFT | found->network;
	return TENANT;
}

#endif
