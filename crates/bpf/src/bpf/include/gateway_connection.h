/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Connections that the program knows: where rules are bound to an end of a packet, only what belongs
 * to one of them is sent on here. Numbers of TCP are followed by the rules of Tcp in
 * crates/gateway-core/src/conntrack/tcp.rs.
 */
#ifndef RINGSIDE_GATEWAY_CONNECTION_H
#define RINGSIDE_GATEWAY_CONNECTION_H

#include "gateway_parse.h"

#include <linux/tcp.h>

#define TCP_STATE_FLAGS 0x27 /* URG, RST, SYN, FIN: nothing that plain data has */
#define TCP_RST 0x04
#define TCP_ACK 0x10

/* ICMP and ICMPv6, as echo requests and replies have it. */
struct echo {
	__u8 type;
	__u8 code;
	__u16 check;
	__be16 identifier;
	__be16 sequence;
};

/* Type and code. */
#define ECHO_REQUEST_V4 0x0800
#define ECHO_REPLY_V4 0x0000
#define ECHO_REQUEST_V6 0x8000
#define ECHO_REPLY_V6 0x8100

/* What the packet carries, if there is a checksum or a connection to look at. */
struct upper {
	__u32 at; /* from the frame's beginning; 0: nothing to be looked at */
	__u32 length;
	__u32 protocol;
};

/* Is the first address the higher one, or of two that are the same the one with the higher port? */
static __always_inline int is_higher(const __be32 *first, const __be32 *second, int words,
				     __be16 first_port, __be16 second_port)
{
#pragma unroll
	for (int i = 0; i < 4; i++) {
		if (i < words && first[i] != second[i])
			return bpf_ntohl(first[i]) > bpf_ntohl(second[i]);
	}
	return bpf_ntohs(first_port) > bpf_ntohs(second_port);
}

/* Type and code of an echo as ports: true. Other ICMP: false. */
static __always_inline int echo_ports(const struct echo *echo, __u32 protocol, __be16 ports[2],
				      int *asks)
{
	__u16 kind = echo->type << 8 | echo->code;
	int v4 = protocol == IPPROTO_ICMP;

	*asks = kind == (v4 ? ECHO_REQUEST_V4 : ECHO_REQUEST_V6);
	if (!*asks && kind != (v4 ? ECHO_REPLY_V4 : ECHO_REPLY_V6))
		return 0;
	ports[0] = *asks ? echo->identifier : bpf_htons(ECHO_PORT);
	ports[1] = *asks ? bpf_htons(ECHO_PORT) : echo->identifier;
	return 1;
}

/* Numbers of TCP wrap: is `a` before `b`? */
static __always_inline int is_before(__u32 a, __u32 b)
{
	return (__s32)(a - b) < 0;
}

/*
 * Moves a bound up. Another CPU may do the same at the same time, or the entry may be that of
 * another connection by now, whose name is written before its bounds.
 */
static __always_inline void move_up(const struct connection *connection, __u64 name, __u32 *bound,
				    __u32 to)
{
	for (int i = 0; i < 3; i++) {
		__u32 before = *(volatile __u32 *)bound;

		if (!is_before(before, to) || *(volatile __u64 *)&connection->name != name ||
		    __sync_val_compare_and_swap(bound, before, to) == before)
			return;
	}
}

/* Nothing is checked from now on. Another CPU may change other flags at the same time. */
static __always_inline void forget_numbers(struct connection *connection)
{
	__sync_fetch_and_and(&connection->flags, ~(NUMBERED | UNSETTLED));
}

/*
 * The least and the most that acknowledgments may lag behind: with what was sent beyond a window,
 * less than 2^31. What segments of workers may be ahead.
 */
#define LEAST_LAG 66000
#define MOST_LAG 0x7fff0000u
#define UNSEEN (1 << 28)
/* Of ns in the unit of `fitted`. */
#define FITTED_SHIFT 30
/*
 * In that unit, 30 s: segments of an end of which none has fit for longer may not have come here.
 * Another CPU may be one ahead.
 */
#define GAP 28

static __always_inline int is_in_gap(const struct tcp_side *side, __u32 now)
{
	return now + 1 - side->fitted > GAP + 1;
}

/*
 * What one has sent, as a lower bound: up to one more than was offered, which is how a closed window
 * is probed.
 */
static __always_inline __u32 sent_by(const struct tcp_side *side)
{
	__u32 most = side->limit + 1;

	return is_before(most, side->end) ? most : side->end;
}

/*
 * Does a segment fit what both ends have said? What it says is noted then. As Tcp::fits() and
 * see_others() of crates/gateway-core/src/conntrack/tcp.rs. Bounds move by segments within them
 * only: one that is ahead passes while a worker may know more, and is noted apart.
 */
static __always_inline int note_segment(const struct connection *connection, __u64 name,
					struct tcp_side *side, struct tcp_side *other,
					const struct tcphdr *tcp, __u32 length, int is_settled,
					__u32 now)
{
	__u32 sequence = bpf_ntohl(tcp->seq), acknowledgment = bpf_ntohl(tcp->ack_seq);
	__u32 end = sequence + length - tcp->doff * 4 + tcp->fin;
	__u32 others = ((__u32)other->window << (other->scale & 15)) + 1, own, lag;
	__u16 window = bpf_ntohs(tcp->window);
	__u32 offered = acknowledgment + ((__u32)window << (side->scale & 15));
	__u32 limit = side->limit + UNSEEN;

	if (is_settled) {
		limit = side->limit + 1;
		/* Some senders exceed the window; the receiver has offered this much before. */
		if (!tcp->rst && end != sequence)
			limit += others;
	}
	if (is_before(limit, sequence) || is_before(end, sent_by(side) - others - 1))
		return 0;
	/* A reset ends what its sender knows nothing of: nobody's numbers follow from it. */
	if (tcp->rst)
		return 1;
	/* What the other end takes (RFC 5961 5.2) if it has sent all that it may. */
	own = ((__u32)side->window << (side->scale & 15)) + 1;
	lag = own < MOST_LAG - own ? 2 * own : MOST_LAG - own;
	if (is_before(is_settled ? other->end : other->end + UNSEEN, acknowledgment) ||
	    is_before(acknowledgment, sent_by(other) - (lag > LEAST_LAG ? lag : LEAST_LAG)))
		return 0;
	if (!is_settled) {
		move_up(connection, name, &side->end_seen, end);
		move_up(connection, name, &other->end_seen, acknowledgment);
		move_up(connection, name, &other->limit_seen, offered);
		if (is_before(side->limit + 1, sequence) || is_before(other->end, acknowledgment)) {
			__u8 seen = window < 0xff00 ? (window >> 8) + 1 : 0xff;

			if (side->window < window && side->window_seen < seen)
				side->window_seen = seen;
			return 1;
		}
	}
	if (side->window < window)
		side->window = window;
	move_up(connection, name, &side->end, end);
	move_up(connection, name, &other->limit, offered);
	if (is_settled && side->fitted != now)
		side->fitted = now;
	return 1;
}

/*
 * Moves a bound up to the one of workers, if they have moved it further since it was put. Numbers
 * wrap: by themselves they do not say which of two bounds is ahead if one has moved by more than
 * 2 GiB since.
 */
static __always_inline void merge(const struct connection *connection, __u64 name, __u32 *bound,
				  __u32 from, __u32 to)
{
	if (*(volatile __u32 *)bound - from < to - from)
		move_up(connection, name, bound, to);
}

/* The window that `window_seen` stands for, if that is larger. */
static __always_inline void widen(struct tcp_side *side)
{
	__u16 seen = side->window_seen == 0xff ? 0xffff : ((__u16)side->window_seen << 8) - 1;

	if (side->window_seen && side->window < seen)
		side->window = seen;
}

/*
 * Changes a connection as its owner wants. It is there, and known by that name: true. After MERGE
 * all that was sent is within the bounds. What was seen ahead and is not was forged, or is more
 * than a window: which of them cannot be told, and SETTLE forgets the numbers.
 */
static __always_inline int amend(const struct amendment *wanted)
{
	struct connection *connection = bpf_map_lookup_elem(&connections, &wanted->key);
	struct tcp_side *low, *high;

	if (!connection || connection->name != wanted->name)
		return 0;
	if (wanted->flags & RENEW) {
		connection->generation = wanted->generation;
		connection->idle_ms = wanted->idle_ms;
		connection->name = wanted->new_name;
		if (connection->seen < wanted->seen)
			connection->seen = wanted->seen;
	}
	if (wanted->flags & FORGET)
		forget_numbers(connection);
	if (!(connection->flags & UNSETTLED))
		return 1;
	low = &connection->sides[0];
	high = &connection->sides[1];
	if (wanted->flags & MERGE) {
#pragma unroll
		for (int i = 0; i < 2; i++) {
			struct tcp_side *side = &connection->sides[i];
			merge(connection, wanted->name, &side->end, wanted->sides[i].from_end,
			      wanted->sides[i].end);
			merge(connection, wanted->name, &side->limit, wanted->sides[i].from_limit,
			      wanted->sides[i].limit);
			if (side->window < wanted->sides[i].window)
				side->window = wanted->sides[i].window;
		}
	}
	if (wanted->flags & SETTLE) {
		if (is_before(low->end, low->end_seen) || is_before(high->end, high->end_seen)) {
			forget_numbers(connection);
		} else {
			move_up(connection, wanted->name, &low->limit, low->limit_seen);
			move_up(connection, wanted->name, &high->limit, high->limit_seen);
			widen(low);
			widen(high);
			low->fitted = high->fitted = bpf_ktime_get_coarse_ns() >> FITTED_SHIFT;
			__sync_fetch_and_and(&connection->flags, ~UNSETTLED);
		}
	}
	return 1;
}

/* Of is_established(). */
enum known {
	UNKNOWN,
	KNOWN,
	OUT_OF_WINDOW, /* known, and its numbers are none that its sender may send */
};

/* Of is_established(): what a packet's numbers are checked for. */
enum follow {
	TO_SEND_ON = 0,	    /* forwarded here if its connection is known */
	WITH_RULES = 1,	    /* a worker decides about it */
	WITHOUT_RULES = 2,  /* no rules are bound to its ends, which may have another connection */
};

/*
 * A step. KNOWN: plain data, or an echo, of a connection that is known here and was allowed by the
 * policy in force. Only TO_SEND_ON a packet is KNOWN: else TCP's numbers are checked and noted.
 * WITHOUT_RULES no packet is OUT_OF_WINDOW: one that does not fit ends the check.
 */
__noinline int is_established(struct xdp_md *ctx, const struct config *config,
			      const struct found *found, const struct upper *upper, __u32 follow)
{
	struct connection_key key = {};
	struct connection *connection;
	struct policy *policy;
	struct tcphdr *tcp = 0;
	struct packet packet;
	__u32 slot;
	__be16 ports[2]; /* of the sender and of the receiver */
	int from_high, is_first, is_over, asks = 0, is_echo = 0;
	void *at;
	__u64 now;

	if (!config || !found || !upper || !upper->at || !open_packet(ctx, found, &packet))
		return UNKNOWN;
	at = packet.data + (upper->at & PLACES);
	if (upper->protocol == IPPROTO_TCP) {
		__u8 flags;

		tcp = at;
		if (!FITS(tcp, packet.end))
			return UNKNOWN;
		flags = ((__u8 *)tcp)[13];
		if (tcp->doff < 5 || tcp->doff * 4 > upper->length)
			return UNKNOWN;
		/* A SYN, or what has no ACK and is no reset, says nothing of an open connection. */
		if (follow ? (tcp->syn || !(flags & (TCP_RST | TCP_ACK))) :
				(flags & (TCP_STATE_FLAGS | TCP_ACK)) != TCP_ACK)
			return UNKNOWN;
		ports[0] = tcp->source;
		ports[1] = tcp->dest;
	} else if (follow) {
		return UNKNOWN;
	} else if (upper->protocol == IPPROTO_UDP) {
		struct udphdr *udp = at;
		__u32 length;

		if (!FITS(udp, packet.end))
			return UNKNOWN;
		length = bpf_ntohs(udp->len);
		if (length < sizeof(*udp) || length > upper->length)
			return UNKNOWN;
		ports[0] = udp->source;
		ports[1] = udp->dest;
	} else {
		struct echo *echo = at;

		if (!FITS(echo, packet.end) || !echo_ports(echo, upper->protocol, ports, &asks))
			return UNKNOWN;
		is_echo = 1;
	}
	key.protocol = upper->protocol;
	if (found->content == IP4) {
		struct iphdr *ip = packet.network;

		key.network = NETWORK_V4 | found->vni;
		from_high = is_higher(&ip->saddr, &ip->daddr, 1, ports[0], ports[1]);
		key.low[0] = from_high ? ip->daddr : ip->saddr;
		key.high[0] = from_high ? ip->saddr : ip->daddr;
	} else {
		struct ipv6hdr *ip6 = packet.network;

		if (!has_ipv6(&packet))
			return UNKNOWN;
		key.network = NETWORK_V6 | found->vni;
		from_high = is_higher(ip6->saddr.s6_addr32, ip6->daddr.s6_addr32, 4, ports[0], ports[1]);
		if (from_high) {
			__builtin_memcpy(key.low, &ip6->daddr, sizeof(key.low));
			__builtin_memcpy(key.high, &ip6->saddr, sizeof(key.high));
		} else {
			__builtin_memcpy(key.low, &ip6->saddr, sizeof(key.low));
			__builtin_memcpy(key.high, &ip6->daddr, sizeof(key.high));
		}
	}
	key.ports[0] = from_high ? ports[1] : ports[0];
	key.ports[1] = from_high ? ports[0] : ports[1];
	connection = bpf_map_lookup_elem(&connections, &key);
	if (!connection)
		return UNKNOWN;
	slot = found->vni & (POLICY_SLOTS - 1);
	policy = bpf_map_lookup_elem(&policies, &slot);
	if (!policy)
		return UNKNOWN;
	/* A tick of the kernel is exact enough, and no clock is read. */
	now = bpf_ktime_get_coarse_ns();
	is_over = (__s64)(now - connection->seen) > (__s64)connection->idle_ms * 1000000;
	if (tcp && (config->flags & CHECK_WINDOWS) && (connection->flags & NUMBERED) &&
	    connection->numbered >= policy->followed_since) {
		struct tcp_side *side = &connection->sides[0], *other = &connection->sides[1];
		int is_settled = !(connection->flags & UNSETTLED);
		__u32 coarse = now >> FITTED_SHIFT;
		__u64 name = *(volatile __u64 *)&connection->name;

		/* What refuses a SYN of somebody who knows nothing of the connection. */
		if (tcp->rst && tcp->ack && !tcp->seq)
			return UNKNOWN;
		if (from_high) {
			side = &connection->sides[1];
			other = &connection->sides[0];
		}
		if (!note_segment(connection, name, side, other, tcp, upper->length, is_settled,
				  coarse)) {
			/* If it is over, another connection may have these ports now. */
			if (is_over)
				return UNKNOWN;
			/* A valid RST answers a segment that was in the window or ended the check. */
			if (is_settled && follow != WITHOUT_RULES &&
			    (tcp->rst || !is_in_gap(side, coarse)))
				return OUT_OF_WINDOW;
			forget_numbers(connection);
		}
		/* The daemon renamed the entry meanwhile, so the segment was not noted. */
		if (*(volatile __u64 *)&connection->name != name)
			return UNKNOWN;
	}
	if (follow || is_over || connection->generation < policy->since ||
	    connection->generation < config->generation)
		return UNKNOWN;
	is_first = from_high == !!(connection->flags & FROM_HIGH);
	/* An answer to what had none; or requests of the other end, if the identifier is ECHO_PORT. */
	if ((!is_first && (connection->flags & ONE_WAY)) || (is_echo && asks != is_first))
		return UNKNOWN;
	if (connection->seen < now)
		connection->seen = now;
	return KNOWN;
}

#endif
