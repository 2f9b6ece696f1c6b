/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The Internet checksum, on words as they lie in memory: a ones' complement sum
 * does not care about their byte order (RFC 1071, 2B).
 */
#ifndef RINGSIDE_CHECKSUM_H
#define RINGSIDE_CHECKSUM_H

#include "parse.h"

/* Several fields as one word, as they lie in memory. */
typedef __u32 __attribute__((__may_alias__)) word32;

/* Two bytes each: what fits a page. */
#define MAX_CHECKSUM_WORDS 2048
/* What is summed after one look at the packet's end. */
struct block {
	word32 words[8];
};

#define MAX_BLOCKS (2 * MAX_CHECKSUM_WORDS / sizeof(struct block))
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
 * bounds. Not static: the verifier then looks at its loops once, and not once
 * for each way through the headers.
 */
__noinline int sum_datagram(struct xdp_md *ctx, __u32 start, __u32 length)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	struct block *block;
	__u64 sum = 0;
	__u16 *word;

	if (start > MAX_HEADERS || length > 2 * MAX_CHECKSUM_WORDS)
		return -1;
	block = data + start;
	for (__u32 i = 1; i <= MAX_BLOCKS; i++, block++) {
		if (i * sizeof(*block) > length)
			break;
		if ((void *)(block + 1) > end)
			return -1;
#pragma unroll
		for (int at = 0; at < 8; at++)
			sum += block->words[at];
	}
	length %= sizeof(*block);
	word = (void *)block;
	for (__u32 i = 0; i < sizeof(*block) / 2; i++, word++) {
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
	return fold_wide((sum & 0xffffffff) + (sum >> 32));
}

#endif
