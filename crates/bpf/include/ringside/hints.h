/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Hints from an XDP program to the program that receives the packet through an
 * AF_XDP socket: a struct in front of the packet, whose last member is its own
 * id in the BTF.
 *
 *	struct rx_time {
 *		__u64 rx_ktime;
 *		__u32 btf_id;
 *	} RINGSIDE_HINTS;
 *
 *	struct rx_time *hints = ringside_hints(ctx, struct rx_time);
 *	if (hints) {
 *		hints->rx_ktime = bpf_ktime_get_ns();
 *		hints->btf_id = ringside_hints_id(struct rx_time);
 *	}
 *	return bpf_redirect_map(&xsks_map, ctx->rx_queue_index, XDP_PASS);
 *
 * Every pointer into the packet has to be read from the context anew afterwards,
 * as after bpf_xdp_adjust_meta(): best do it last.
 *
 * For programs compiled with clang -g -O2 -target bpf, which libbpf loads. What
 * the drivers do not support comes back as NULL, and so does a struct of more
 * bytes than the kernel allows (252; before Linux 6.8 32).
 */
#ifndef RINGSIDE_HINTS_H
#define RINGSIDE_HINTS_H

#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

/* Without padding, so that the id is last, and aligned as metadata is. */
#define RINGSIDE_HINTS __attribute__((packed, aligned(4)))

/* The id of a struct of hints: libbpf puts it in when it loads the program. */
#define ringside_hints_id(type) ((__u32)bpf_core_type_id_local(type))

/* Takes off so many bytes of metadata, if there are as many. */
static __always_inline void ringside_hints_less(struct xdp_md *ctx, const int bytes)
{
	void *meta = (void *)(long)ctx->data_meta;

	if (meta + bytes <= (void *)(long)ctx->data)
		bpf_xdp_adjust_meta(ctx, bytes);
}

/*
 * Takes off metadata that came with the packet, from an XDP program that sent it
 * here from another interface: what lies right in front of the packet would be
 * taken for this program's. To be called for a packet that gets no hints and
 * goes to a socket; ringside_hints() does it by itself.
 */
static __always_inline void ringside_no_hints(struct xdp_md *ctx)
{
	/*
	 * In steps, for the verifier knows no difference of two pointers, and without
	 * CAP_PERFMON no loop of this kind. Metadata is a multiple of four, 252 at the
	 * most: a sum of these.
	 */
	ringside_hints_less(ctx, 128);
	ringside_hints_less(ctx, 64);
	ringside_hints_less(ctx, 32);
	ringside_hints_less(ctx, 16);
	ringside_hints_less(ctx, 8);
	ringside_hints_less(ctx, 4);
}

static __always_inline void *ringside_hints_room(struct xdp_md *ctx, const int size)
{
	void *meta;

	ringside_no_hints(ctx);
	if (bpf_xdp_adjust_meta(ctx, -size))
		return (void *)0;
	meta = (void *)(long)ctx->data_meta;
	if (meta + size > (void *)(long)ctx->data)
		return (void *)0;
	/*
	 * Without CAP_PERFMON the verifier lets no such pointer be compared with
	 * NULL: the caller's check is of what was decided here.
	 */
	__builtin_assume(meta != (void *)0);
	return meta;
}

/* Room for a struct of hints in front of the packet, or NULL. All of it, the id too, is to be written. */
#define ringside_hints(ctx, type) ((type *)ringside_hints_room((ctx), (int)sizeof(type)))

#endif
