// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Steers packets into the AF_XDP sockets of an interface, whichever it is.
 */
#include "steer.h"

static __always_inline void tell(struct xdp_md *ctx, __u64 packet)
{
	tell_rx(ctx, packet);
}

/* For holders of CAP_PERFMON: the faster one, and the only one before Linux 5.18. */
SEC("xdp")
int ringside_xsk(struct xdp_md *ctx)
{
	return steer(ctx, BY_POINTER);
}

/* For everybody else. */
SEC("xdp")
int ringside_xsk_h(struct xdp_md *ctx)
{
	return steer(ctx, AT_FIXED_PLACES);
}

/* bpf_redirect_map() and the parsing helpers are open to any licence; so is this. */
char LICENSE[] SEC("license") = "Dual MIT/GPL";
