// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * The gateway's fast path: tenants' packets to receivers that the cache knows are
 * rewritten and sent on, questions for addresses answered, what is damaged
 * dropped. All else that is a tenant's goes to a worker through the XSKMAP, and
 * what is none's to the kernel. A tenant's packet never goes to the kernel.
 *
 * Needs CAP_PERFMON: headers are read by packet pointers.
 */
#include "gateway_answer.h"
#include "gateway_lane.h"

/* Set before loading. */
const volatile __u32 queues_of_port = 1;

/* Are these the addresses that are asked for? */
static __always_inline int concerns(struct xdp_md *ctx, const struct sampling *wanted, __u32 place)
{
	__u32 at = place & ((1u << CONTENT_SHIFT) - 1);
	__be32 first[4] = {}, second[4] = {};

	switch (place >> CONTENT_SHIFT) {
	case IP4:
		if (wanted->family != 4 || bpf_xdp_load_bytes(ctx, at + 12, first, 4) ||
		    bpf_xdp_load_bytes(ctx, at + 16, second, 4))
			return 0;
		break;
	case ARP:
		if (wanted->family != 4 || bpf_xdp_load_bytes(ctx, at + 14, first, 4) ||
		    bpf_xdp_load_bytes(ctx, at + 24, second, 4))
			return 0;
		break;
	case IP6:
		if (wanted->family != 6 || bpf_xdp_load_bytes(ctx, at + 8, first, 16) ||
		    bpf_xdp_load_bytes(ctx, at + 24, second, 16))
			return 0;
		break;
	case DISCOVERY:
		/* Who asks, and the target behind the header and eight bytes. */
		if (wanted->family != 6 || bpf_xdp_load_bytes(ctx, at + 8, first, 16) ||
		    bpf_xdp_load_bytes(ctx, at + 48, second, 16))
			return 0;
		break;
	default:
		return 0;
	}
	return same_v6(first, wanted->address) || same_v6(second, wanted->address);
}

/* Shows a packet as it came, if it is wanted. `network`: its VNI, or more than 24 bits. */
__noinline int take_sample(struct xdp_md *ctx, __u32 outcome, __u32 network, __u32 place)
{
	const struct config *config = current_config();
	const struct sampling *wanted;
	struct sample *sample;
	__u32 captured;

	if (!config)
		return 0;
	wanted = &config->sampling;
	if (wanted->drops && (outcome >= PASSED || (wanted->drops != ANY_DROP && wanted->drops != outcome)))
		return 0;
	if ((wanted->by_network && wanted->vni != network) ||
	    (wanted->family && !concerns(ctx, wanted, place)))
		return 0;
	sample = bpf_ringbuf_reserve(&samples, sizeof(*sample), 0);
	if (!sample) {
		count(SAMPLES_LOST, 0);
		return 0;
	}
	sample->time = bpf_ktime_get_ns();
	sample->ifindex = ctx->ingress_ifindex;
	sample->queue = ctx->rx_queue_index;
	sample->outcome = outcome;
	sample->vni = network;
	sample->length = bpf_xdp_get_buff_len(ctx);
	captured = sample->length < SAMPLE_BYTES ? sample->length : SAMPLE_BYTES;
	/* From 1 on, as Linux 6.1 wants to see it. Of nothing there is nothing to be had. */
	captured = ((captured - 1) & (SAMPLE_BYTES - 1)) + 1;
	if (bpf_xdp_load_bytes(ctx, 0, sample->bytes, captured))
		captured = 0;
	sample->captured = captured;
	bpf_ringbuf_submit(sample, 0);
	return 1;
}

/* To be called before the packet is edited. */
static __always_inline void show(struct xdp_md *ctx, const struct config *config,
				 const struct found *found, __u32 outcome)
{
	if (config->sampling.on)
		take_sample(ctx, outcome, found->told_network, found->told_place);
}

/* Where the socket of its port and queue is in the XSKMAP; outside of it if there can be none. */
static __always_inline __u32 place_of_worker(struct xdp_md *ctx, const struct config *config)
{
	__u32 queue = ctx->rx_queue_index;

	for (__u32 i = 0; i < MOST_PORTS; i++) {
		if (config->ports[i].ifindex == ctx->ingress_ifindex && queue < queues_of_port)
			return i * queues_of_port + queue;
	}
	return ~0u;
}

/* Does somebody keep the maps true, or did until a moment ago? */
static __always_inline int is_owned(__u32 worker)
{
	struct lease *left;
	__u32 key = 0;

	if (bpf_map_lookup_elem(&workers, &worker))
		return 1;
	left = bpf_map_lookup_elem(&lease, &key);
	return left && bpf_ktime_get_coarse_ns() < left->until;
}

/*
 * A tenant's packet is sent on, or what it asks is answered, if that can be done here: TENANT. It is
 * counted once it is ready to be sent, and shown before: one that cannot be made so is shown once more.
 */
static __always_inline __u32 serve(struct xdp_md *ctx, const struct config *config,
				   const struct found *found, int *action)
{
	/* As long as it claims, which is what will be sent. */
	__u64 bytes = sizeof(struct ethhdr) + found->total;
	__u32 outcome;

	if (found->content == IP4 || found->content == IP6) {
		struct route route = {};

		outcome = find_route(ctx, config, found, &route);
		if (outcome != TENANT)
			return outcome;
		outcome = FORWARDED;
		*action = XDP_TX;
		if (config->ports[route.place & (MOST_PORTS - 1)].ifindex != ctx->ingress_ifindex) {
			outcome = REDIRECTED;
			*action = bpf_redirect_map(&ports, route.place, XDP_DROP);
		}
		if (*action == XDP_DROP)
			return DROP_TRANSMIT_FAILED;
		show(ctx, config, found, outcome);
		/* Rules are for the gateway to keep. */
		if (config->one_in && !route.policed)
			choose(ctx, config, found, outcome);
		if (!send_on(ctx, config, found, &route))
			goto failed;
		count(outcome, bytes);
		if (route.to.flags & FOREIGN)
			count(FOREIGN_PACKETS, bytes);
	} else {
		struct answer answer = {};

		outcome = find_answer(ctx, config, found, &answer);
		if (outcome != TENANT)
			return outcome;
		*action = XDP_TX;
		show(ctx, config, found, ANSWERED);
		if (!(found->content == ARP ? answer_arp(ctx, found, &answer) :
					      answer_discovery(ctx, found, &answer)) ||
		    !send_back(ctx, config, found, &answer))
			goto failed;
		count(ANSWERED, bytes);
		if (answer.foreign)
			count(FOREIGN_PACKETS, bytes);
	}
	return TENANT;
failed:
	*action = XDP_DROP;
	return DROP_TRANSMIT_FAILED;
}

/*
 * Everything that the straight lane leaves. A function of its own: the lane then has the
 * registers for itself. Not static, as its steps: the verifier looks at it once, and not once
 * for each way to leave the lane.
 */
__noinline int long_way(struct xdp_md *ctx, const struct config *config)
{
	struct found found = {};
	int action = XDP_DROP;
	__u32 outcome, worker;

	if (!config)
		return XDP_PASS;
	worker = place_of_worker(ctx, config);
	found.told_network = ~0u;
	outcome = classify(ctx, config, &found);
	if ((outcome == TENANT || outcome >= SLOW_FIRST) && (config->flags & STALE)) {
		outcome = DROP_STALE;
	} else if (outcome == TENANT && !is_owned(worker)) {
		outcome = DROP_NO_WORKER;
	} else if (outcome == TENANT) {
		outcome = serve(ctx, config, &found, &action);
		if (outcome == TENANT)
			return action;
		/* A worker checks no numbers of connections that are known here. */
		if (outcome >= SLOW_FIRST && is_out_of_window(ctx, config, &found))
			outcome = DROP_OUT_OF_WINDOW;
	}
	if (outcome == PASSED) {
		action = XDP_PASS;
	} else if (outcome >= SLOW_FIRST) {
		action = bpf_redirect_map(&workers, worker, XDP_DROP);
		if (action == XDP_DROP)
			outcome = DROP_NO_WORKER;
	}
	count(outcome, bpf_xdp_get_buff_len(ctx));
	show(ctx, config, &found, outcome);
	return action;
}

/*
 * May it go straight, though no socket is where the witness is said to be? Its port may be
 * gone while others serve, or there is a lease. Seldom, and hence not in the lane itself.
 */
static __noinline int may_go_straight(struct xdp_md *ctx, const struct config *config)
{
	return config->witness != NO_WITNESS && is_owned(place_of_worker(ctx, config));
}

SEC("xdp.frags")
int ringside_gateway(struct xdp_md *ctx)
{
	const struct config *config = current_config();

	if (!config)
		return XDP_PASS;
	if ((bpf_map_lookup_elem(&workers, &config->witness) || may_go_straight(ctx, config)) &&
	    straight_on(ctx, config))
		return XDP_TX;
	return long_way(ctx, config);
}

/* Run by the owner on a `struct amendment`; XDP_PASS: done. It is never attached. */
SEC("xdp")
int ringside_gateway_amend(struct xdp_md *ctx)
{
	struct amendment wanted;

	if (bpf_xdp_load_bytes(ctx, 0, &wanted, sizeof(wanted)))
		return XDP_ABORTED;
	return amend(&wanted) ? XDP_PASS : XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
