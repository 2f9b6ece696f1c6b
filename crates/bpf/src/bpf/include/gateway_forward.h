/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A tenant's packet to a known receiver: may it be sent on here, and if so its
 * new headers. What is done is what Decider and rewrite::forward() of
 * crates/gateway-core do with a packet that leaves in what it came in; whatever
 * else there is to decide is a worker's.
 */
#ifndef RINGSIDE_GATEWAY_FORWARD_H
#define RINGSIDE_GATEWAY_FORWARD_H

#include "gateway_connection.h"
#include "gateway_table.h"

#define MOST_TTL_LEFT 1 /* with so much, its way ends here */

/* False: the header is not there, which is as in open_packet(). */
static __always_inline int key_of(struct neighbor_key *key, const struct packet *packet,
				  const struct found *found, int source)
{
	if (found->content == IP4) {
		struct iphdr *ip = packet->network;

		key->network = NETWORK_V4 | found->vni;
		key->address[0] = source ? ip->saddr : ip->daddr;
		key->address[1] = key->address[2] = key->address[3] = 0;
	} else {
		struct ipv6hdr *ip6 = packet->network;

		if (!has_ipv6(packet))
			return 0;
		key->network = NETWORK_V6 | found->vni;
		__builtin_memcpy(key->address, source ? &ip6->saddr : &ip6->daddr,
				 sizeof(key->address));
	}
	return 1;
}

static __always_inline __u64 sum_addresses(const struct ipv6hdr *ip6)
{
	__u64 sum = 0;

#pragma unroll
	for (int i = 0; i < 4; i++)
		sum += (__u64)ip6->saddr.s6_addr32[i] + ip6->daddr.s6_addr32[i];
	return sum;
}

/*
 * Is the checksum of the `length` bytes at `start` the sum of the pseudo header alone? Linux
 * leaves such a checksum to a NIC, which completes it; a veth never does. One checksum in
 * 65,536 is complete and has the same value, so the sum of all bytes decides. 1 if the packet
 * is too long to be summed here.
 */
static __always_inline int is_partial(struct xdp_md *ctx, __u16 check, __u64 addresses,
				      __u8 protocol, __u32 start, __u32 length)
{
	__u64 pseudo = addresses + bpf_htons(length) + bpf_htons(protocol);
	int sum;

	if (!check || check != fold_wide(pseudo))
		return 0;
	sum = sum_datagram(ctx, start, length);
	return sum < 0 || fold_wide(pseudo + sum) != 0xffff;
}

static __always_inline int is_outer_partial(struct xdp_md *ctx, const struct packet *packet,
					    const struct found *found)
{
	struct udphdr *udp = packet->udp;
	struct iphdr *ip = packet->ip;
	__u64 addresses;

	if (!udp->check)
		return 0;
	addresses = found->v6 ? sum_addresses(packet->ip) : (__u64)ip->saddr + ip->daddr;
	return is_partial(ctx, udp->check, addresses, IPPROTO_UDP, (void *)udp - packet->data,
			  bpf_ntohs(udp->len));
}

/*
 * A step: finds TCP and UDP of packets that are whole. SLOW_HEADERS: it is behind what is not
 * read here; SLOW_CHECKSUM: one of the checksums is left to a NIC.
 */
__noinline int find_upper(struct xdp_md *ctx, const struct found *found, struct upper *upper)
{
	struct packet packet;
	__u32 protocol, length;
	__u64 addresses;
	void *at;

	if (!found || !upper || !open_packet(ctx, found, &packet))
		return SLOW_HEADERS;
	if (found->content == IP4) {
		struct iphdr *ip = packet.network;
		__u32 header_len = ip->ihl * 4;

		if (ip->frag_off & bpf_htons(IP_MORE_FRAGMENTS | IP_FRAGMENT_OFFSET))
			goto outer;
		protocol = ip->protocol;
		length = bpf_ntohs(ip->tot_len) - header_len;
		addresses = (__u64)ip->saddr + ip->daddr;
		at = packet.network + header_len;
	} else {
		struct ipv6hdr *ip6 = packet.network;

		if (!has_ipv6(&packet))
			return SLOW_HEADERS;
		protocol = ip6->nexthdr;
		length = bpf_ntohs(ip6->payload_len);
		addresses = sum_addresses(ip6);
		at = ip6 + 1;
		/* A fragment has no checksum of its own; one that is whole all the same has. */
		if (protocol == IPPROTO_FRAGMENT) {
			struct extension *ext = at;

			if (!FITS(ext, packet.end) ||
			    !(ext->fragment & bpf_htons(IP6_FRAGMENT_OFFSET | IP6_MORE_FRAGMENTS)))
				return SLOW_HEADERS;
			goto outer;
		}
		if (is_extension(protocol))
			return SLOW_HEADERS;
	}
	upper->length = length;
	upper->protocol = protocol;
	if (protocol == IPPROTO_TCP) {
		struct tcphdr *tcp = at;

		/* Cut short, or in another buffer. */
		if (length < sizeof(*tcp) || !FITS(tcp, packet.end))
			return SLOW_HEADERS;
		upper->at = at - packet.data;
		if (is_partial(ctx, tcp->check, addresses, IPPROTO_TCP, upper->at, length))
			return SLOW_CHECKSUM;
	} else if (protocol == IPPROTO_UDP) {
		struct udphdr *udp = at;
		__u32 datagram;

		if (length < sizeof(*udp) || !FITS(udp, packet.end))
			return SLOW_HEADERS;
		datagram = bpf_ntohs(udp->len);
		upper->at = at - packet.data;
		if (datagram >= sizeof(*udp) && datagram <= length &&
		    is_partial(ctx, udp->check, addresses, IPPROTO_UDP, upper->at, datagram))
			return SLOW_CHECKSUM;
	} else if (protocol == IPPROTO_ICMP || protocol == IPPROTO_ICMPV6) {
		struct echo *echo = at;

		/* One that is cut short goes on where no rules are bound. */
		if (length >= sizeof(*echo) && FITS(echo, packet.end))
			upper->at = at - packet.data;
	}
outer:
	return is_outer_partial(ctx, &packet, found) ? SLOW_CHECKSUM : TENANT;
}

static __always_inline int is_from_its_host(const struct packet *packet, const struct found *found,
					    const struct neighbor *sender)
{
	if (!!(sender->flags & HOST_IS_V6) != found->v6 ||
	    !same_mac(packet->inner->h_source, sender->mac))
		return 0;
	if (found->v6) {
		struct ipv6hdr *ip6 = packet->ip;

		return same_v6((__be32 *)&ip6->saddr, sender->host);
	} else {
		struct iphdr *ip = packet->ip;

		return ip->saddr == sender->host[0];
	}
}

/* Where a packet goes. */
struct route {
	struct neighbor to;
	__u32 place;   /* of the port */
	__u32 routed;  /* it was sent to a router: its own TTL goes down */
	__u32 policed; /* rules are bound to an end */
	__be16 source_port;
	__u16 pad;
};

static __always_inline int has_ports(__u8 protocol)
{
	return protocol == IPPROTO_TCP || protocol == IPPROTO_UDP;
}

/* Tells flows apart, RFC 7348, 5: Decider's source_port(). 0: that takes more than is in the first buffer. */
static __always_inline __be16 derived_port(const struct packet *packet,
					  const struct found *found)
{
	const __u64 mix = 0x9e3779b97f4a7c15;
	__u64 hash = found->vni;
	__be32 *word, *ports;
	int words = 2, whole;

	if (found->content == IP4) {
		struct iphdr *ip = packet->network;

		word = &ip->saddr;
		ports = (__be32 *)(ip + 1);
		whole = ip->ihl == 5 && !(ip->frag_off & bpf_htons(0x3fff)) && has_ports(ip->protocol);
	} else {
		struct ipv6hdr *ip6 = packet->network;

		if (!has_ipv6(packet))
			return 0;
		word = (__be32 *)&ip6->saddr;
		ports = (__be32 *)(ip6 + 1);
		whole = has_ports(ip6->nexthdr);
		words = 8;
	}
#pragma unroll
	for (int i = 0; i < 8; i++) {
		if (i < words) {
			hash = (hash ^ bpf_ntohl(word[i])) * mix;
			hash ^= hash >> 29;
		}
	}
	if (whole && FITS(ports, packet->end)) {
		hash = (hash ^ bpf_ntohl(*ports)) * mix;
		hash ^= hash >> 29;
	}
	return bpf_htons(0xc000 | (__u16)hash);
}

/* A step. TENANT: it can be sent on. */
__noinline int find_route(struct xdp_md *ctx, const struct config *config,
			  const struct found *found, struct route *route)
{
	struct neighbor_key key;
	const struct neighbor *receiver;
	struct upper upper = {};
	struct packet packet;
	const struct port *by;
	__u32 outcome, place;
	int policed, guarded;

	if (!config || !found || !route || !open_packet(ctx, found, &packet) ||
	    !key_of(&key, &packet, found, 0))
		return SLOW_HEADERS;
	receiver = &route->to;
	if (!find_neighbor(&key, &route->to))
		return SLOW_MISS;
	outcome = find_upper(ctx, found, &upper);
	if (outcome != TENANT)
		return outcome;

	policed = receiver->flags & POLICED;
	guarded = policy_since(found->vni) != 0;
	if (guarded || (config->flags & SOURCE_CHECK)) {
		struct neighbor sender = {};

		if (!key_of(&key, &packet, found, 1))
			return SLOW_HEADERS;
		/* Nobody known, a port without a neighbour, or one that the cache has no room for: no connection
		 * says which. */
		if (!find_neighbor(&key, &sender))
			return SLOW_SENDER;
		if ((config->flags & SOURCE_CHECK) && !is_from_its_host(&packet, found, &sender))
			return SLOW_SENDER;
		if (guarded && (sender.flags & POLICED))
			policed = 1;
	}

	place = receiver->port;
	if (place >= MOST_PORTS)
		return SLOW_ROUTE;
	/* Linux 6.1 forgets the bound over a spill: it is said again, and the compiler shall not know better. */
	barrier_var(place);
	place &= MOST_PORTS - 1;
	by = &config->ports[place];
	if (!!(receiver->flags & HOST_IS_V6) != found->v6 ||
	    (receiver->encapsulation != AS_IT_CAME &&
	     receiver->encapsulation != found->encapsulation))
		return SLOW_ENCAPSULATION;
	if (!by->ifindex)
		return SLOW_ROUTE;
	if (found->total > by->mtu ||
	    ((receiver->flags & LIMITED) && found->total > receiver->mtu))
		return SLOW_TOO_LONG;

	route->routed = !same_mac(packet.inner->h_dest, receiver->mac);
	if (found->v6) {
		struct ipv6hdr *ip6 = packet.ip;
		const __be32 *own = by->v6;

		if (!(own[0] | own[1] | own[2] | own[3]))
			return SLOW_ROUTE;
		if (ip6->hop_limit <= MOST_TTL_LEFT)
			return SLOW_TTL;
	} else {
		struct iphdr *ip = packet.ip;

		if (!by->v4)
			return SLOW_ROUTE;
		if (ip->ttl <= MOST_TTL_LEFT)
			return SLOW_TTL;
	}
	if (route->routed) {
		struct iphdr *ip = packet.network;
		struct ipv6hdr *ip6 = packet.network;
		__u8 left = found->content == IP4 ? ip->ttl : ip6->hop_limit;

		if (left <= MOST_TTL_LEFT)
			return SLOW_TTL;
	}
	/* Last, for it says of a connection that it is alive. */
	if (policed) {
		int known = is_established(ctx, config, found, &upper, TO_SEND_ON);

		if (known != KNOWN)
			return known == OUT_OF_WINDOW ? DROP_OUT_OF_WINDOW : SLOW_POLICED;
	} else if (guarded && (config->flags & CHECK_WINDOWS) && upper.protocol == IPPROTO_TCP) {
		/* Rules that were bound to its ends may be again. */
		is_established(ctx, config, found, &upper, WITHOUT_RULES);
	}
	route->place = place;
	route->policed = policed;
	route->source_port = config->flags & DERIVE_PORT ? derived_port(&packet, found) :
							   packet.udp->source;
	return TENANT;
}

/* A step. Are both ends known here, and no rules bound to either? */
__noinline int has_no_rules(struct xdp_md *ctx, const struct found *found)
{
	struct neighbor_key key;
	struct neighbor end = {};
	struct packet packet;

	if (!found || !open_packet(ctx, found, &packet) || !key_of(&key, &packet, found, 0) ||
	    !find_neighbor(&key, &end) || (end.flags & POLICED))
		return 0;
	return key_of(&key, &packet, found, 1) && find_neighbor(&key, &end) &&
	       !(end.flags & POLICED);
}

/*
 * Is it a TCP segment of a connection that is known here, with numbers that its sender may not
 * send? A worker follows no numbers of such a connection. Where no rules are bound there is none.
 */
static __always_inline int is_out_of_window(struct xdp_md *ctx, const struct config *config,
					    const struct found *found)
{
	struct upper upper = {};
	__u32 follow;

	if (!(config->flags & CHECK_WINDOWS) ||
	    (found->content != IP4 && found->content != IP6) || !policy_since(found->vni))
		return 0;
	/* Whatever else it says of the packet. */
	find_upper(ctx, found, &upper);
	if (upper.protocol != IPPROTO_TCP)
		return 0;
	follow = has_no_rules(ctx, found) ? WITHOUT_RULES : WITH_RULES;
	return is_established(ctx, config, found, &upper, follow) == OUT_OF_WINDOW;
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

/* A step. Before the packet is edited. */
__noinline int choose(struct xdp_md *ctx, const struct config *config, const struct found *found,
		      __u32 outcome)
{
	struct flow flow = {};
	struct neighbor_key key;
	struct packet packet;
	struct counter *counter;

	if (!config || !found)
		return 0;
	counter = bpf_map_lookup_elem(&counters, &outcome);
	if (!counter || !is_chosen(counter, config->one_in))
		return 0;
	if (!open_packet(ctx, found, &packet) || !key_of(&key, &packet, found, 1))
		return 0;
	__builtin_memcpy(flow.source, key.address, sizeof(flow.source));
	if (!key_of(&key, &packet, found, 0))
		return 0;
	__builtin_memcpy(flow.destination, key.address, sizeof(flow.destination));
	flow.network = key.network;
	flow.outer_v6 = found->v6;
	if (found->v6) {
		struct ipv6hdr *ip6 = packet.ip;

		__builtin_memcpy(flow.host, &ip6->saddr, sizeof(flow.host));
	} else {
		struct iphdr *ip = packet.ip;

		flow.host[0] = ip->saddr;
	}
	return tell_flow(&flow);
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

/*
 * Takes off what is behind the outer IP packet: padding, or whatever else. It is nobody's, and with it
 * the frame may be longer than the port takes.
 */
static __always_inline int cut_behind(struct xdp_md *ctx, const struct found *found)
{
	__u32 wanted = sizeof(struct ethhdr) + found->total;
	__u64 linear = (void *)(long)ctx->data_end - (void *)(long)ctx->data;
	__u32 behind;

	if (linear == wanted)
		return 1;
	behind = bpf_xdp_get_buff_len(ctx) - wanted;
	return !behind || !bpf_xdp_adjust_tail(ctx, -(int)behind);
}

/* A step: puts the new headers in. False: nothing is done, for headers are not there. */
__noinline int send_on(struct xdp_md *ctx, const struct config *config, const struct found *found,
		       const struct route *route)
{
	struct packet packet;
	struct udphdr *udp;
	struct ethhdr *eth;
	const struct port *by;
	/* What the outer UDP checksum covers, before and after. */
	__u64 old, new;

	if (!config || !found || !route || !cut_behind(ctx, found) || !open_packet(ctx, found, &packet))
		return 0;
	udp = packet.udp;
	eth = packet.data;
	by = &config->ports[route->place & (MOST_PORTS - 1)];
	old = udp->source;
	new = route->source_port;
	if (route->routed) {
		old += sum_mac(packet.inner->h_dest);
		new += sum_mac(route->to.mac);
		copy_mac(packet.inner->h_dest, route->to.mac);
		if (found->content == IP4) {
			struct iphdr *ip = packet.network;
			__u16 before = word_at(&ip->ttl), check = ip->check;
			__u16 after = one_less(&ip->ttl, 0);

			ip->check = replaced(check, before, after);
			old += before + check;
			new += after + ip->check;
		} else {
			struct ipv6hdr *ip6 = packet.network;

			old += word_at(&ip6->nexthdr);
			new += one_less(&ip6->nexthdr, 1);
		}
	}
	copy_mac(eth->h_dest, route->to.host_mac);
	copy_mac(eth->h_source, by->mac);
	if (found->v6) {
		struct ipv6hdr *ip6 = packet.ip;

		one_less(&ip6->nexthdr, 1);
#pragma unroll
		for (int i = 0; i < 4; i++) {
			old += (__u64)ip6->saddr.s6_addr32[i] + ip6->daddr.s6_addr32[i];
			ip6->saddr.s6_addr32[i] = by->v6[i];
			ip6->daddr.s6_addr32[i] = route->to.host[i];
			new += (__u64)by->v6[i] + route->to.host[i];
		}
	} else {
		struct iphdr *ip = packet.ip;
		__u64 before = (__u64)ip->saddr + ip->daddr;
		__u64 after = (__u64)by->v4 + route->to.host[0];
		__u16 ttl = word_at(&ip->ttl);

		ip->saddr = by->v4;
		ip->daddr = route->to.host[0];
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
	return 1;
}

#endif
