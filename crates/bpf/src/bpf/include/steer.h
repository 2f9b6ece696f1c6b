/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Steering packets into the AF_XDP sockets of an interface: what the program for
 * any device (xsk.bpf.c) and the one that asks its device (xsk_nic.bpf.c) share.
 * The file that includes this says what is put in front of packets: tell().
 *
 * What is not wanted, not understood, or has no socket goes up to the kernel,
 * and so do ARP and IPv6 neighbour discovery: a host with this program attached
 * stays reachable. FILTER_WIRE takes these, too: those who ask through a wire do
 * not ask the host in the middle. FILTER_MATCH takes those about addresses that
 * are not the host's, if match_arp is set.
 */
#ifndef RINGSIDE_STEER_H
#define RINGSIDE_STEER_H

#include "match.h"
#include "parse.h"
#include "ringside/hints.h"

enum filter {
	FILTER_ALL,
	FILTER_NONE,
	FILTER_UDP_PORT,
	FILTER_ETHERTYPE,
	FILTER_ECHO,
	FILTER_WIRE,
	FILTER_MATCH,
};

/*
 * Constants to the verifier, because they are set before loading: the branches
 * of the other filters are not even in the loaded program.
 */
const volatile __u32 filter_kind = FILTER_ALL;
const volatile __u32 filter_value = 0; /* port or ethertype, host byte order */
const volatile __u32 queue_count = 1;

/*
 * What is put in front of packets for sockets, if its id is set: then with the
 * mark that is set, too. 32 bytes, as much as kernels before 6.8 allow.
 */
struct ringside_rx {
	__u64 rx_ktime; /* CLOCK_MONOTONIC in ns */
	__u64 packet; /* packets of this queue on this CPU before it */
	__u32 rx_cpu;
	__u32 rx_queue;
	__u32 mark;
	__u32 btf_id;
} RINGSIDE_HINTS;

const volatile struct ringside_rx hints_wanted = {};

/* One queue on one CPU. Rust reads it as five u64 in this order. */
struct queue_counters {
	__u64 redirected;
	__u64 passed_filter;
	__u64 passed_neighbour;
	__u64 passed_unbound;
	__u64 passed_malformed;
};

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 1); /* set to the number of queues before loading */
	__type(key, __u32);
	__type(value, __u32);
} xsks_map SEC(".maps");

/*
 * Per CPU, hence without atomics: softirq does not preempt softirq on a CPU.
 * The entry behind the last queue is for queues that appeared later.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2); /* set to the number of queues + 1 before loading */
	__type(key, __u32);
	__type(value, struct queue_counters);
} counters SEC(".maps");

enum verdict {
	WANTED,
	NOT_WANTED,
	NEIGHBOUR,
	BROKEN,
	UNDECIDED, /* what it depends on is ELSEWHERE */
};

static __always_inline enum verdict classify(struct xdp_md *ctx, enum access access)
{
	struct cursor cur = cursor_of(ctx, access);
	struct content content = {};
	__be16 outer = 0, inner = 0, port = 0;
	enum parsed found;

	if (filter_kind == FILTER_WIRE)
		return WANTED;
	if (parse_ethernet(&cur, &outer, &inner) != PARSED)
		return BROKEN;
	found = parse_neighbour(cur, inner);
	if (found == PARSED) {
		if (filter_kind == FILTER_MATCH && match_arp && match(ctx, access, 1) == PARSED)
			return WANTED;
		return NEIGHBOUR;
	}
	if (found == ELSEWHERE)
		return UNDECIDED;
	if (found == MALFORMED || contradicts_itself(cur, inner))
		return BROKEN;

	if (filter_kind == FILTER_ALL)
		return WANTED;
	if (filter_kind == FILTER_NONE)
		return NOT_WANTED;
	if (filter_kind == FILTER_ETHERTYPE) {
		__be16 wanted = bpf_htons((__u16)filter_value);

		return outer == wanted || inner == wanted ? WANTED : NOT_WANTED;
	}
	if (filter_kind == FILTER_MATCH) {
		found = match(ctx, access, 0);
		if (found == ELSEWHERE)
			return UNDECIDED;
		if (found == MALFORMED)
			return BROKEN;
		return found == PARSED ? WANTED : NOT_WANTED;
	}
	found = parse_ip(&cur, inner, &content);
	if (found == ELSEWHERE)
		return UNDECIDED;
	if (found != PARSED)
		return NOT_WANTED;
	if (filter_kind == FILTER_ECHO) {
		found = parse_echo_request(&cur, inner, &content);
		if (found == PARSED)
			return WANTED;
		if (found == MALFORMED)
			return BROKEN;
	}
	found = parse_udp(&cur, &content, &port);
	if (found == MALFORMED)
		return BROKEN;
	return found == PARSED && port == bpf_htons((__u16)filter_value) ? WANTED : NOT_WANTED;
}

/* Not inlined, for the registers that its calls take: they would cost all packets. */
static __noinline enum verdict classify_by_helper(struct xdp_md *ctx)
{
	return classify(ctx, BY_HELPER);
}

static __always_inline void tell_rx(struct xdp_md *ctx, __u64 packet)
{
	struct ringside_rx *hints = ringside_hints(ctx, struct ringside_rx);

	if (!hints)
		return;
	hints->rx_ktime = bpf_ktime_get_ns();
	hints->packet = packet;
	hints->rx_cpu = bpf_get_smp_processor_id();
	hints->rx_queue = ctx->rx_queue_index;
	hints->mark = hints_wanted.mark;
	hints->btf_id = hints_wanted.btf_id;
}

/* Hints in front of a packet that goes to a socket. */
static __always_inline void tell(struct xdp_md *ctx, __u64 packet);

static __always_inline int steer(struct xdp_md *ctx, enum access access)
{
	__u32 queue = ctx->rx_queue_index;
	__u32 slot = queue < queue_count ? queue : queue_count;
	struct queue_counters *count;
	enum verdict verdict;
	int action;

	count = bpf_map_lookup_elem(&counters, &slot);
	if (!count)
		return XDP_PASS;

	verdict = classify(ctx, access);
	if (access == AT_FIXED_PLACES && verdict == UNDECIDED)
		verdict = classify_by_helper(ctx);
	switch (verdict) {
	case WANTED:
		if (hints_wanted.btf_id)
			tell(ctx, count->redirected);
		/*
		 * The queue is read once more, for without CAP_PERFMON each value put on
		 * the stack meanwhile costs a speculation barrier. The third argument is
		 * what comes back when the queue has no socket.
		 */
		action = bpf_redirect_map(&xsks_map, ctx->rx_queue_index, XDP_PASS);
		if (action == XDP_REDIRECT)
			count->redirected++;
		else
			count->passed_unbound++;
		/* Packets with different metadata are not merged by GRO. */
		if (hints_wanted.btf_id && action != XDP_REDIRECT)
			ringside_no_hints(ctx);
		return action;
	case NOT_WANTED:
		count->passed_filter++;
		break;
	case NEIGHBOUR:
		count->passed_neighbour++;
		break;
	case BROKEN:
	case UNDECIDED:
		count->passed_malformed++;
		break;
	}
	return XDP_PASS;
}

#endif
