/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The Internet checksum, on words as they lie in memory: a ones' complement sum
 * does not care about their byte order (RFC 1071, 2B).
 */
#ifndef RINGSIDE_CHECKSUM_H
#define RINGSIDE_CHECKSUM_H

#include "parse.h"

/* Two bytes each: what fits a page. */
#define MAX_CHECKSUM_WORDS 2048
/* Where a sum may begin, behind all headers of a tunnel. */
#define MAX_HEADERS 512

static __always_inline __u32 fold(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16);
}

/*
 * The same of words of 32 bits whose sum is below 2^41. 0 only if it is 0. Folded once
 * it has 26 bits, `low` and `high`; times 0x10001, plus `high`, there is low + high in
 * both halves, and what the lower half carries over is added to the upper one.
 */
static __always_inline __u16 fold_wide(__u64 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum * 0x10001 + (sum >> 16)) >> 16;
}

/* 0 would say that there is no checksum. */
static __always_inline __u16 complement(__u32 folded)
{
	__u16 check = ~folded;

	return check ? check : 0xffff;
}

/*
 * The sum over `length` bytes; -1 if they do not fit the first buffer or the
 * bounds. Not static: the verifier then looks at its loop once, and not once
 * for each way through the headers.
 */
__noinline int sum_datagram(struct xdp_md *ctx, __u32 start, __u32 length)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	__u32 sum = 0;
	__u16 *word;

	if (start > MAX_HEADERS || length > 2 * MAX_CHECKSUM_WORDS)
		return -1;
	word = data + start;
	for (__u32 i = 0; i < MAX_CHECKSUM_WORDS; i++, word++) {
		if (2 * i + 2 > length)
			break;
		if ((void *)(word + 1) > end)
			return -1;
		sum += *word;
	}
	if (length & 1) {
		__u8 *last = (void *)word;

		if ((void *)(last + 1) > end)
			return -1;
		sum += bpf_htons((__u16)*last << 8);
	}
	return fold(sum);
}

#endif
