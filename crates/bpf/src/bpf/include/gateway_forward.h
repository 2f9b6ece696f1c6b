/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A tenant's packet to a known receiver: may it be sent on here, and if so its
 * new headers. What is done is what Decider and rewrite::forward() of
 * crates/gateway-core do with a packet that leaves in what it came in; whatever
 * else there is to decide is a worker's.
 */
#ifndef RINGSIDE_GATEWAY_FORWARD_H
#define RINGSIDE_GATEWAY_FORWARD_H

#include "gateway_parse.h"

#include <linux/tcp.h>

#define TCP_STATE_FLAGS 0x27 /* URG, RST, SYN, FIN: nothing that plain data has */
#define TCP_ACK 0x10
#define MOST_TTL_LEFT 1 /* with so much, its way ends here */

/* What the packet carries, if there is a checksum or a connection to look at. */
struct upper {
	void *at; /* 0: nothing to be looked at */
	__u32 length;
	__u8 protocol;
};

static __always_inline void key_of(struct neighbor_key *key, const struct packet *packet,
				   int source)
{
	if (packet->content == IP4) {
		struct iphdr *ip = packet->network;

		key->network = NETWORK_V4 | packet->vni;
		key->address[0] = source ? ip->saddr : ip->daddr;
		key->address[1] = key->address[2] = key->address[3] = 0;
	} else {
		struct ipv6hdr *ip6 = packet->network;

		key->network = NETWORK_V6 | packet->vni;
		__builtin_memcpy(key->address, source ? &ip6->saddr : &ip6->daddr,
				 sizeof(key->address));
	}
}

/* Finds TCP and UDP of packets that are whole. SLOW_HEADERS: it is behind what is not read here. */
static __always_inline __u32 find_upper(const struct packet *packet, struct upper *upper)
{
	if (packet->content == IP4) {
		struct iphdr *ip = packet->network;
		__u32 header_len = ip->ihl * 4;

		if (ip->frag_off & bpf_htons(IP_MORE_FRAGMENTS | IP_FRAGMENT_OFFSET))
			return TENANT;
		upper->protocol = ip->protocol;
		upper->length = bpf_ntohs(ip->tot_len) - header_len;
		upper->at = packet->network + header_len;
	} else {
		struct ipv6hdr *ip6 = packet->network;

		upper->protocol = ip6->nexthdr;
		upper->length = bpf_ntohs(ip6->payload_len);
		upper->at = ip6 + 1;
		/* A fragment has no checksum of its own; one that is whole all the same has. */
		if (upper->protocol == IPPROTO_FRAGMENT) {
			struct extension *ext = upper->at;

			upper->at = 0;
			if (!FITS(ext, packet->end))
				return SLOW_HEADERS;
			return ext->fragment & bpf_htons(IP6_FRAGMENT_OFFSET | IP6_MORE_FRAGMENTS) ?
				       TENANT :
				       SLOW_HEADERS;
		}
		if (is_extension(upper->protocol))
			return SLOW_HEADERS;
	}
	if (upper->protocol == IPPROTO_TCP) {
		struct tcphdr *tcp = upper->at;

		if (upper->length >= sizeof(*tcp) && FITS(tcp, packet->end))
			return TENANT;
	} else if (upper->protocol == IPPROTO_UDP) {
		struct udphdr *udp = upper->at;

		if (upper->length >= sizeof(*udp) && FITS(udp, packet->end))
			return TENANT;
	} else {
		upper->at = 0;
		return TENANT;
	}
	/* Cut short, or in another buffer. */
	upper->at = 0;
	return SLOW_HEADERS;
}

/* Addresses, protocol and length, folded. */
static __always_inline __u16 pseudo_header(const void *ip, int v6, __u8 protocol, __u32 length)
{
	__u64 sum = bpf_htons(length) + bpf_htons(protocol);

	if (!v6) {
		const struct iphdr *ip4 = ip;

		return fold_wide(sum + ip4->saddr + ip4->daddr);
	}
#pragma unroll
	for (int i = 0; i < 4; i++) {
		const struct ipv6hdr *ip6 = ip;

		sum += (__u64)ip6->saddr.s6_addr32[i] + ip6->daddr.s6_addr32[i];
	}
	return fold_wide(sum);
}

/*
 * Is one of the checksums the pseudo header's sum alone? So Linux leaves it to a
 * NIC that will complete it, and a veth never does. (A whole one can be the same
 * by chance: a worker tells.)
 */
static __always_inline int is_partial(const struct packet *packet, const struct upper *upper)
{
	struct udphdr *outer = packet->udp;
	int v6 = packet->content == IP6;

	if (outer->check && outer->check == pseudo_header(packet->ip, packet->v6, IPPROTO_UDP,
							  bpf_ntohs(outer->len)))
		return 1;
	if (!upper->at)
		return 0;
	if (upper->protocol == IPPROTO_TCP) {
		struct tcphdr *tcp = upper->at;

		return tcp->check && tcp->check == pseudo_header(packet->network, v6, IPPROTO_TCP,
								 upper->length);
	} else {
		struct udphdr *udp = upper->at;
		__u32 length = bpf_ntohs(udp->len);

		return udp->check && length >= sizeof(*udp) && length <= upper->length &&
		       udp->check == pseudo_header(packet->network, v6, IPPROTO_UDP, length);
	}
}

/* Plain data of a connection that is known here and was allowed by the policy in force? */
static __always_inline int is_established(const struct config *config, const struct packet *packet,
					  const struct upper *upper)
{
	struct connection_key key = {};
	struct connection *connection;
	__u64 now;

	if (!upper->at)
		return 0;
	if (upper->protocol == IPPROTO_TCP) {
		struct tcphdr *tcp = upper->at;
		__u8 flags = ((__u8 *)tcp)[13];

		if (tcp->doff < 5 || tcp->doff * 4 > upper->length ||
		    (flags & (TCP_STATE_FLAGS | TCP_ACK)) != TCP_ACK)
			return 0;
		key.ports[0] = tcp->source;
		key.ports[1] = tcp->dest;
	} else {
		struct udphdr *udp = upper->at;
		__u32 length = bpf_ntohs(udp->len);

		if (length < sizeof(*udp) || length > upper->length)
			return 0;
		key.ports[0] = udp->source;
		key.ports[1] = udp->dest;
	}
	key.protocol = upper->protocol;
	if (packet->content == IP4) {
		struct iphdr *ip = packet->network;

		key.network = NETWORK_V4 | packet->vni;
		key.source[0] = ip->saddr;
		key.destination[0] = ip->daddr;
	} else {
		struct ipv6hdr *ip6 = packet->network;

		key.network = NETWORK_V6 | packet->vni;
		__builtin_memcpy(key.source, &ip6->saddr, sizeof(key.source));
		__builtin_memcpy(key.destination, &ip6->daddr, sizeof(key.destination));
	}
	connection = bpf_map_lookup_elem(&connections, &key);
	if (!connection || connection->generation < policy_since(packet->vni) ||
	    connection->generation < config->generation)
		return 0;
	/* A tick of the kernel is exact enough, and no clock is read. */
	now = bpf_ktime_get_coarse_ns();
	if ((__s64)(now - connection->seen) > (__s64)connection->idle_ms * 1000000)
		return 0;
	if (connection->seen < now)
		connection->seen = now;
	return 1;
}

static __always_inline int is_from_its_host(const struct packet *packet,
					    const struct neighbor *sender)
{
	if (!!(sender->flags & HOST_IS_V6) != packet->v6 ||
	    !same_mac(packet->inner->h_source, sender->mac))
		return 0;
	if (packet->v6) {
		struct ipv6hdr *ip6 = packet->ip;

		return same_v6((__be32 *)&ip6->saddr, sender->host);
	} else {
		struct iphdr *ip = packet->ip;

		return ip->saddr == sender->host[0];
	}
}

/* Where a packet goes. */
struct route {
	struct neighbor *to;
	const struct port *by;
	__u32 place; /* of the port */
	int routed;  /* it was sent to a router: its own TTL goes down */
	int policed; /* rules are bound to an end */
	__be16 source_port;
};

/* Tells flows apart, RFC 7348, 5: Decider's source_port(). 0: that takes more than is in the first buffer. */
static __always_inline __be16 derived_port(const struct packet *packet)
{
	const __u64 mix = 0x9e3779b97f4a7c15;
	__u64 hash = packet->vni;
	__be32 *word, *ports;
	int words = 2;

	if (packet->content == IP4) {
		struct iphdr *ip = packet->network;

		word = &ip->saddr;
		ports = (__be32 *)(ip + 1);
	} else {
		struct ipv6hdr *ip6 = packet->network;

		word = (__be32 *)&ip6->saddr;
		ports = (__be32 *)(ip6 + 1);
		words = 8;
	}
#pragma unroll
	for (int i = 0; i < 8; i++) {
		if (i < words) {
			hash = (hash ^ bpf_ntohl(word[i])) * mix;
			hash ^= hash >> 29;
		}
	}
	if (FITS(ports, packet->end)) {
		hash = (hash ^ bpf_ntohl(*ports)) * mix;
		hash ^= hash >> 29;
	}
	return bpf_htons(0xc000 | (__u16)hash);
}

/* TENANT: it can be sent on. */
static __always_inline __u32 find_route(const struct config *config, const struct packet *packet,
					struct route *route)
{
	struct neighbor_key key;
	struct neighbor *receiver;
	struct upper upper = {};
	__u32 outcome, place;
	int policed, guarded;

	key_of(&key, packet, 0);
	receiver = bpf_map_lookup_elem(&neighbors, &key);
	if (!receiver)
		return SLOW_MISS;
	if (!receiver->used)
		receiver->used = 1;
	outcome = find_upper(packet, &upper);
	if (outcome != TENANT)
		return outcome;
	if (is_partial(packet, &upper))
		return SLOW_CHECKSUM;

	policed = receiver->flags & POLICED;
	guarded = policy_since(packet->vni) != 0;
	if (guarded || (config->flags & SOURCE_CHECK)) {
		struct neighbor *sender;

		key_of(&key, packet, 1);
		sender = bpf_map_lookup_elem(&neighbors, &key);
		/* Nobody known, a port without a neighbour, or one that the cache has no room for: no connection
		 * says which. */
		if (!sender)
			return SLOW_SENDER;
		if (!sender->used)
			sender->used = 1;
		if ((config->flags & SOURCE_CHECK) && !is_from_its_host(packet, sender))
			return SLOW_SENDER;
		if (guarded && (sender->flags & POLICED))
			policed = 1;
	}

	place = receiver->port;
	if (place >= MOST_PORTS)
		return SLOW_ROUTE;
	/* Linux 6.1 forgets the bound over a spill: it is said again, and the compiler shall not know better. */
	barrier_var(place);
	place &= MOST_PORTS - 1;
	route->place = place;
	route->by = &config->ports[place];
	if (!!(receiver->flags & HOST_IS_V6) != packet->v6 ||
	    (receiver->encapsulation != AS_IT_CAME &&
	     receiver->encapsulation != packet->encapsulation))
		return SLOW_ENCAPSULATION;
	if (!route->by->ifindex)
		return SLOW_ROUTE;
	if (packet->length > route->by->mtu)
		return SLOW_TOO_LONG;

	route->routed = !same_mac(packet->inner->h_dest, receiver->mac);
	if (packet->v6) {
		struct ipv6hdr *ip6 = packet->ip;
		const __be32 *own = route->by->v6;

		if (!(own[0] | own[1] | own[2] | own[3]))
			return SLOW_ROUTE;
		if (ip6->hop_limit <= MOST_TTL_LEFT)
			return SLOW_TTL;
	} else {
		struct iphdr *ip = packet->ip;

		if (!route->by->v4)
			return SLOW_ROUTE;
		if (ip->ttl <= MOST_TTL_LEFT)
			return SLOW_TTL;
	}
	if (route->routed) {
		struct iphdr *ip = packet->network;
		struct ipv6hdr *ip6 = packet->network;
		__u8 left = packet->content == IP4 ? ip->ttl : ip6->hop_limit;

		if (left <= MOST_TTL_LEFT)
			return SLOW_TTL;
	}
	/* Last, for it says of a connection that it is alive. */
	if (policed && !is_established(config, packet, &upper))
		return SLOW_POLICED;
	route->policed = policed;
	route->source_port = config->flags & DERIVE_PORT ? derived_port(packet) : packet->udp->source;
	route->to = receiver;
	return TENANT;
}

/* Tells who sends to whom. Before the packet is edited. */
static __noinline int tell_flow(struct flow *from)
{
	struct flow *flow = bpf_ringbuf_reserve(&flows, sizeof(*flow), 0);

	/* Nobody reads, or not fast enough: another one will be told. */
	if (!flow)
		return 0;
	*flow = *from;
	bpf_ringbuf_submit(flow, 0);
	return 0;
}

static __always_inline void choose(const struct config *config, const struct packet *packet,
				   const struct route *route, __u32 outcome)
{
	struct flow flow = {};
	struct neighbor_key key;
	struct counter *counter;

	/* Rules are for the gateway to keep. */
	if (!config->one_in || route->policed)
		return;
	counter = bpf_map_lookup_elem(&counters, &outcome);
	if (!counter || !is_chosen(counter, config->one_in))
		return;
	key_of(&key, packet, 1);
	__builtin_memcpy(flow.source, key.address, sizeof(flow.source));
	key_of(&key, packet, 0);
	__builtin_memcpy(flow.destination, key.address, sizeof(flow.destination));
	flow.network = key.network;
	flow.outer_v6 = packet->v6;
	if (packet->v6) {
		struct ipv6hdr *ip6 = packet->ip;

		__builtin_memcpy(flow.host, &ip6->saddr, sizeof(flow.host));
	} else {
		struct iphdr *ip = packet->ip;

		flow.host[0] = ip->saddr;
	}
	tell_flow(&flow);
}

/*
 * The checksum after words that it covers have changed by so much, less than 2^40 up or
 * down: RFC 1624, equation 3. A multiple of 0xffff changes no ones' complement sum: with
 * one that is larger than what is taken off, nothing has to be folded before.
 */
static __always_inline __u16 changed(__u16 check, __u64 more)
{
	/* 0xffff - check is ~check, and of constants the compiler makes one. */
	return ~fold_wide((0xffffull << 24) + 0xffff - check + more);
}

/* The same of words that sum up to `old` before and `new` after. */
static __always_inline __u16 replaced(__u16 check, __u64 old, __u64 new)
{
	return changed(check, new - old);
}

static __always_inline __u64 sum_mac(const __u8 *mac)
{
	return (__u64)*(__u32 *)mac + *(__u16 *)(mac + 4);
}

/*
 * Takes one from the TTL or hop limit in a word of two bytes, which it is the first or the second of, and which is
 * written as it was read: a CPU waits for a byte that was just written before it reads the word around it.
 */
static __always_inline __u16 one_less(void *at, int second)
{
	__u16 *word = at;

	*word -= second ? bpf_htons(0x0001) : bpf_htons(0x0100);
	return *word;
}

static __always_inline __u16 word_at(const void *at)
{
	return *(const __u16 *)at;
}

static __always_inline void send_on(const struct packet *packet, const struct route *route)
{
	struct udphdr *udp = packet->udp;
	struct ethhdr *eth = packet->data;
	/* What the outer UDP checksum covers, before and after. */
	__u64 old = udp->source, new = route->source_port;

	if (route->routed) {
		old += sum_mac(packet->inner->h_dest);
		new += sum_mac(route->to->mac);
		copy_mac(packet->inner->h_dest, route->to->mac);
		if (packet->content == IP4) {
			struct iphdr *ip = packet->network;
			__u16 before = word_at(&ip->ttl), check = ip->check;
			__u16 after = one_less(&ip->ttl, 0);

			ip->check = replaced(check, before, after);
			old += before + check;
			new += after + ip->check;
		} else {
			struct ipv6hdr *ip6 = packet->network;

			old += word_at(&ip6->nexthdr);
			new += one_less(&ip6->nexthdr, 1);
		}
	}
	copy_mac(eth->h_dest, route->to->host_mac);
	copy_mac(eth->h_source, route->by->mac);
	if (packet->v6) {
		struct ipv6hdr *ip6 = packet->ip;

		one_less(&ip6->nexthdr, 1);
#pragma unroll
		for (int i = 0; i < 4; i++) {
			old += (__u64)ip6->saddr.s6_addr32[i] + ip6->daddr.s6_addr32[i];
			ip6->saddr.s6_addr32[i] = route->by->v6[i];
			ip6->daddr.s6_addr32[i] = route->to->host[i];
			new += (__u64)route->by->v6[i] + route->to->host[i];
		}
	} else {
		struct iphdr *ip = packet->ip;
		__u64 before = (__u64)ip->saddr + ip->daddr;
		__u64 after = (__u64)route->by->v4 + route->to->host[0];
		__u16 ttl = word_at(&ip->ttl);

		ip->saddr = route->by->v4;
		ip->daddr = route->to->host[0];
		ip->check = replaced(ip->check, before + ttl, after + one_less(&ip->ttl, 0));
		old += before;
		new += after;
	}
	udp->source = route->source_port;
	/* 0: there is none. */
	if (udp->check) {
		__u16 check = replaced(udp->check, old, new);

		udp->check = check ? check : 0xffff;
	}
}

#endif
