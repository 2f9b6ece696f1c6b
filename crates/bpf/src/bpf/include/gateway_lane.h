/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The straight lane: an IPv4 packet of a tenant in plain VXLAN over plain IPv4, to a
 * receiver in a network without rules that is in the cache and leaves as it came. Many packets
 * are like that, and everything has its fixed place in them: one look at the length, and
 * nothing that depends on what came before. Whatever is not exactly so goes the long
 * way, which decides the same and more; what is done here is what it would do.
 */
#ifndef RINGSIDE_GATEWAY_LANE_H
#define RINGSIDE_GATEWAY_LANE_H

#include "gateway_forward.h"

/* Several fields are read as one word and compared as one, as with `word32`. */
typedef __u64 __attribute__((__may_alias__)) word64;

/* Ethernet: type; IPv4: version and length of its header. The byte behind them is free. */
#define TYPE_AND_VERSION bpf_htonl(0xffffff00)
#define PLAIN_IPV4 bpf_htonl(ETH_P_IP << 16 | 0x45 << 8)
/* IPv4: fragment, TTL, protocol. */
#define FRAGMENT bpf_htonl((IP_FRAGMENT_OFFSET | IP_MORE_FRAGMENTS) << 16)
#define LIVES_ON bpf_htonl((0xff & ~MOST_TTL_LEFT) << 8) /* for MOST_TTL_LEFT is 1 */
#define PROTOCOL bpf_htonl(0xff)
#define NOT_FOR_ONE bpf_htonl(0xe0000000) /* multicast, broadcast, and what nobody has */
/* Of a neighbour: port and flags, of which none may be set. */
#define NO_PLAIN_PORT bpf_htons((__u16)~((MOST_PORTS - 1) << 8))
/* Of a neighbour: encapsulation, which is AS_IT_CAME or VXLAN, and used. */
#define EITHER_WAY bpf_htons(VXLAN << 8)
#define USED bpf_htons(1)
#define PLAIN_HEADERS                                                                     \
	(sizeof(struct iphdr) + sizeof(struct udphdr) + sizeof(struct tunnel) +           \
	 sizeof(struct ethhdr))

static __always_inline word32 word32_at(const void *at)
{
	return *(const word32 *)at;
}

static __always_inline word64 word64_at(const void *at)
{
	return *(const word64 *)at;
}

/* So many bytes of a word, from this one on in memory: a field of it. */
static __always_inline __u64 field(__u64 word, int at, int bytes)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	return word << (64 - 8 * (at + bytes)) >> (64 - 8 * bytes);
#else
	return word << 8 * at >> (64 - 8 * bytes);
#endif
}

/* The first six bytes of a word. */
static __always_inline void put_mac(__u8 *to, __u64 word)
{
	*(word32 *)to = field(word, 0, 4);
	*(__u16 *)(to + 4) = field(word, 4, 2);
}

/*
 * The sum of a pseudo header alone, which is there if the rest is left to a NIC? It is
 * if it differs by a multiple of 0xffff, and -1 / 0xffff is 0x0001000100010001 in 64
 * bits: times that, the multiples of so few bits, and nothing else, become small.
 * Swapping two bytes is multiplying by 256 in such sums.
 */
static __always_inline int is_left(__u16 check, const struct iphdr *ip, __u64 length)
{
	__u64 sum = (__u64)ip->saddr + ip->daddr + (length + ip->protocol) * bpf_htons(1);

	return (check - sum) * 0x0001000100010001ull < 1 << 20;
}

/* Not a fragment, whole, as long as the packet, and with no checksum that is left to a NIC? */
static __always_inline int is_upper_plain(const struct iphdr *ip, __u64 length)
{
	const struct tcphdr *tcp = (const void *)(ip + 1);
	const struct udphdr *udp = (const void *)(ip + 1);
	word32 carried = word32_at(&ip->frag_off) & (FRAGMENT | PROTOCOL);

	if (carried == bpf_htonl(IPPROTO_TCP))
		return length >= sizeof(*tcp) &&
		       !(tcp->check && is_left(tcp->check, ip, length));
	if (carried == bpf_htonl(IPPROTO_UDP))
		return length >= sizeof(*udp) && udp->len == bpf_htons(length) &&
		       !(udp->check && is_left(udp->check, ip, length));
	return !(carried & FRAGMENT);
}

/* An address of IPv4 as the first of two words. */
static __always_inline __u64 first_word(__be32 address)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	return address;
#else
	return (__u64)address << 32;
#endif
}

/* Is this the place of an address of IPv4? */
static __always_inline int is_of(const struct neighbor_slot *slot, __u32 network, __be32 address)
{
	return *(const volatile __u32 *)&slot->key.network == network &&
	       *(const volatile __u32 *)slot->key.address == address;
}

/* Seldom, and hence not in the lane itself. */
static __noinline int tell_plain(__be32 host, const struct iphdr *inner, __u32 network)
{
	struct flow flow = {
		.network = network,
		.host = { host },
		.source = { inner->saddr },
		.destination = { inner->daddr },
	};

	return tell_flow(&flow);
}

/* Sent on: true. False: nothing is done, and it goes the long way. Only while config->witness says that it may. */
static __always_inline int straight_on(struct xdp_md *ctx, const struct config *config)
{
	static const __u32 outcome = FORWARDED;
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = data;
	struct iphdr *ip = (void *)(eth + 1);
	struct udphdr *udp = (void *)(ip + 1);
	struct tunnel *tunnel = (void *)(udp + 1);
	struct ethhdr *inner = (void *)(tunnel + 1);
	struct iphdr *inner_ip = (void *)(inner + 1);
	struct tcphdr *upper = (void *)(inner_ip + 1);
	struct neighbor_slot *receiver;
	struct counter *counter;
	const struct config *settings;
	const struct port *by;
	__u64 total, inner_total;
	__u64 mac, host_mac, by_mac, by_address, own, more, address;
	__u32 network, place, version;
	__be32 host, to;
	word32 rest;
	__u16 state;

	if (!FITS(upper, end))
		return 0;
	/* The outer headers. */
	total = bpf_ntohs(ip->tot_len);
	rest = word32_at(&ip->frag_off);
	if ((word32_at(&eth->h_proto) & TYPE_AND_VERSION) != PLAIN_IPV4 ||
	    (rest & (FRAGMENT | PROTOCOL)) != bpf_htonl(IPPROTO_UDP) || !(rest & LIVES_ON) ||
	    ip->daddr != config->v4[0])
		return 0;
	/* Its port, and as long as IPv4 says: what has more behind it goes the long way. Nothing is borrowed: below, total is
	 * found to be large enough. */
	if (bpf_ntohl(word32_at(&udp->dest)) != (__u32)(config->vxlan_plain + total) ||
	    (long)total != end - (void *)ip || !(tunnel->flags & VXLAN_VALID) ||
	    (udp->check && is_left(udp->check, ip, total - sizeof(*ip))) ||
	    (word32_at(&inner->h_proto) & TYPE_AND_VERSION) != PLAIN_IPV4)
		return 0;

	network = NETWORK_V4 | bpf_ntohl(tunnel->vni) >> 8;
	address = first_word(inner_ip->daddr);
	place = place_of(hash_of(network, address, 0), 0);
	receiver = bpf_map_lookup_elem(&neighbors, &place);
	if (!receiver)
		return 0;

	/* What is in them, while the neighbour comes from memory. As long as what it is in: what is padded goes the long way. */
	inner_total = bpf_ntohs(inner_ip->tot_len);
	if (inner_total + PLAIN_HEADERS != total || inner_total < sizeof(*inner_ip) ||
	    (inner->h_dest[0] & 1) || (inner_ip->daddr & NOT_FOR_ONE) == NOT_FOR_ONE ||
	    !is_upper_plain(inner_ip, inner_total - sizeof(*inner_ip)))
		return 0;

	/* Where it goes: as in read_slot(), but for the words that are all 0 with IPv4. */
	version = version_of(receiver, 0);
	receiver = (void *)receiver + after(version);
	if ((version & 1) || !is_of(receiver, network, inner_ip->daddr)) {
		place = elsewhere(network, address, 0);
		receiver = bpf_map_lookup_elem(&neighbors, &place);
		if (!receiver)
			return 0;
		version = version_of(receiver, 0);
		receiver = (void *)receiver + after(version);
		if ((version & 1) || !is_of(receiver, network, inner_ip->daddr))
			return 0;
	}
	mac = *(const volatile word64 *)receiver->value.mac;
	host_mac = *(const volatile word64 *)receiver->value.host_mac;
	to = *(const volatile __be32 *)receiver->value.host;
	if (version_of(receiver, mac | host_mac | to) != version)
		return 0;
	if (field(mac, 6, 2) & NO_PLAIN_PORT)
		return 0;
	/* Else the compiler has it in two registers from the beginning. */
	settings = config;
	barrier_var(settings);
	by = &settings->ports[field(mac, 6, 1)];
	state = field(host_mac, 6, 2) | EITHER_WAY;
	if (state != (EITHER_WAY | USED)) {
		if (state != EITHER_WAY)
			return 0;
		receiver->value.used = 1;
	}
	by_address = word64_at(&by->ifindex);
	if (field(by_address, 0, 4) != ctx->ingress_ifindex)
		return 0;
	own = field(by_address, 4, 4);
	by_mac = word64_at(by->mac);
	if (!own || total > field(by_mac, 6, 2))
		return 0;
	/* Differs by the MAC address if it was sent to a router. */
	mac ^= word64_at(inner->h_dest);
	if (field(mac, 0, 6) && inner_ip->ttl <= MOST_TTL_LEFT)
		return 0;

	put_mac(eth->h_dest, host_mac);
	put_mac(eth->h_source, by_mac);
	host = ip->saddr;
	/* What the outer UDP checksum covers, after less before; a TTL has one less. */
	more = own + to - host - ip->daddr;
	ip->saddr = own;
	ip->daddr = to;
	ip->check = changed(ip->check, more - bpf_htons(0x0100));
	one_less(&ip->ttl, 0);
	if (field(mac, 0, 6)) {
		__u16 before = word_at(&inner_ip->ttl), check = inner_ip->check;
		__u16 after = one_less(&inner_ip->ttl, 0);

		more -= sum_mac(inner->h_dest) + before + check;
		put_mac(inner->h_dest, word64_at(inner->h_dest) ^ mac);
		inner_ip->check = replaced(check, before, after);
		more += sum_mac(inner->h_dest) + after + inner_ip->check;
	}
	if (udp->check) {
		__u16 check = changed(udp->check, more);

		udp->check = check ? check : 0xffff;
	}

	counter = bpf_map_lookup_elem(&counters, &outcome);
	if (counter) {
		counter->packets++;
		counter->bytes += sizeof(*eth) + total;
		if (config->one_in && is_chosen(counter, config->one_in))
			tell_plain(host, inner_ip, NETWORK_V4 | bpf_ntohl(tunnel->vni) >> 8);
	}
	return 1;
}

#endif
