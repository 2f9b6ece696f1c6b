// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Counts and drops: the most that a kernel can receive on an interface, and a
 * peer that costs the sender next to nothing.
 */
#include "parse.h"
#include "traffic.h"

const volatile __u32 pass_neighbour = 1;
/* Not 0: only UDP to this port is dropped and counted. */
const volatile __u32 only_udp_port = 0;

static __always_inline int belongs_to_host(struct xdp_md *ctx)
{
	struct cursor cur = cursor_of(ctx, BY_POINTER);
	__be16 outer, inner;

	return parse_ethernet(&cur, &outer, &inner) == PARSED &&
	       parse_neighbour(cur, inner) == PARSED;
}

SEC("xdp")
int ringside_sink(struct xdp_md *ctx)
{
	struct traffic *seen = traffic();

	if (!seen)
		return XDP_PASS;
	if (only_udp_port && !is_udp_to(ctx, only_udp_port)) {
		seen->passed++;
		return XDP_PASS;
	}
	if (pass_neighbour && belongs_to_host(ctx)) {
		seen->passed++;
		return XDP_PASS;
	}
	count(seen, ctx->data_end - ctx->data);
	return XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
