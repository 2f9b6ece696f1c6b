// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Hints that follow from the number of a test packet, which lies behind its Ethernet header: of three structs in turn,
 * none, and one with an id that means nothing.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "ringside/hints.h"

struct test_time {
	__u64 number;
	__u32 queue;
	__u32 btf_id;
} RINGSIDE_HINTS;

struct test_mark {
	__u32 mark;
	__u32 btf_id;
} RINGSIDE_HINTS;

struct test_step {
	__u16 low;
	__s16 negative;
};

struct test_whole {
	struct test_step steps[3];
	union {
		__u64 wide;
		__u32 half;
	};
	__u8 bytes[6];
	__be16 proto;
	__u32 btf_id;
} RINGSIDE_HINTS;

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} layout_xsks SEC(".maps");

static __always_inline void hints_of(struct xdp_md *ctx, __u64 number)
{
	switch (number % 5) {
	case 0: {
		struct test_time *hints = ringside_hints(ctx, struct test_time);

		if (hints) {
			hints->number = number;
			hints->queue = ctx->rx_queue_index;
			hints->btf_id = ringside_hints_id(struct test_time);
		}
		break;
	}
	case 1: {
		struct test_mark *hints = ringside_hints(ctx, struct test_mark);

		if (hints) {
			hints->mark = (__u32)number;
			hints->btf_id = ringside_hints_id(struct test_mark);
		}
		break;
	}
	case 2: {
		struct test_whole *hints = ringside_hints(ctx, struct test_whole);

		if (hints) {
			for (int n = 0; n < 3; n++) {
				hints->steps[n].low = (__u16)(number + n);
				hints->steps[n].negative = (__s16)-n;
			}
			hints->wide = number << 32 | 7;
			for (int n = 0; n < 6; n++)
				hints->bytes[n] = (__u8)(number + n);
			hints->proto = bpf_htons(ETH_P_8021Q);
			hints->btf_id = ringside_hints_id(struct test_whole);
		}
		break;
	}
	case 3:
		ringside_no_hints(ctx);
		break;
	default: {
		struct test_mark *hints = ringside_hints(ctx, struct test_mark);

		if (hints) {
			hints->mark = 1;
			hints->btf_id = 0xfeedbeef;
		}
	}
	}
}

SEC("xdp")
int layouts(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	struct ethhdr *ethernet = data;
	__be64 *number = (void *)(ethernet + 1);

	if ((void *)(number + 1) > (void *)(long)ctx->data_end || ethernet->h_proto != bpf_htons(0x88b5))
		return XDP_PASS;
	hints_of(ctx, bpf_be64_to_cpu(*number));
	return bpf_redirect_map(&layout_xsks, ctx->rx_queue_index, XDP_PASS);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
