// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * A packet generator without sockets: BPF_PROG_TEST_RUN with live frames runs
 * the first program over frames from a page pool, the program redirects each
 * to a device, and the device's ndo_xdp_xmit takes them in bulk. The second
 * program watches the bulks leave, because nothing else tells how many of them
 * the driver refused.
 */
#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

/* The device of a test run without a context: kernel, net/bpf/test_run.c, xdp_test_run_setup() */
#define LOOPBACK_IFINDEX 1
/* The clock costs as much as a tenth of a packet's way, so it is read now and then. */
#define CLOCK_EVERY 64
#define MAX_RESTORE 128
#define NO_OFFSET 0xffffffff
/* Odd, so that it brings every value below a power of two; otherwise as irregular as can be. */
#define SCATTER 0x9e3779b97f4a7c15

const volatile __u32 out_ifindex = 0;
/* The first bytes of each frame, in words; receivers may have changed a recycled frame. */
const volatile __u64 head[MAX_RESTORE / 8] = {};
const volatile __u32 head_words = 0;
/* Where a 64-bit sequence goes, and where the UDP checksum that covers it is. */
const volatile __u32 sequence_offset = NO_OFFSET;
/* Not 0: these bits of it jump about, through all their values, and the others stay as they are here. */
const volatile __u64 scattered_bits = 0;
const volatile __u64 scattered_base = 0;
const volatile __u32 checksum_offset = NO_OFFSET;
/* The ones' complement sum of all that the checksum covers, the sequence as 0. */
const volatile __u32 base_sum = 0;

/* Written by the generating thread only. Rust reads and writes it between runs, as u64s. */
struct progress {
	__u64 sequence;	   /* of the next frame */
	__u64 redirected;  /* frames handed to the device's queue */
	__u64 skipped;	   /* frames not sent because the run was over */
	__u64 deadline;	   /* CLOCK_MONOTONIC, ns; 0: none */
	__u64 over;	   /* set: nothing more is sent in this run */
	__u64 task;	   /* the generating thread */
	__u64 transmitted; /* frames that the driver took */
	__u64 dropped;	   /* frames that it refused, for instance with its ring full */
	__u64 failed;	   /* bulks for which it returned an error */
	__u64 error;	   /* the last of these errors, as errno */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct progress);
} progress SEC(".maps");

/* Written by whoever wants the run to end early: a map of its own, so that nothing is lost. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} stop SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} out SEC(".maps");

static __always_inline __u32 fold(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16);
}

static __always_inline int is_over(struct progress *run)
{
	__u32 zero = 0;
	__u64 *stopped;

	if (run->over)
		return 1;
	if ((run->redirected & (CLOCK_EVERY - 1)) != 0)
		return 0;
	stopped = bpf_map_lookup_elem(&stop, &zero);
	if ((stopped && *(volatile __u64 *)stopped) ||
	    (run->deadline && bpf_ktime_get_ns() >= run->deadline))
		run->over = 1;
	return run->over;
}

/* 0: the frame is too short for what is to be written into it. */
static __always_inline int fill(struct xdp_md *ctx, __u64 sequence)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;

#pragma unroll
	for (__u32 i = 0; i < MAX_RESTORE / 8; i++) {
		__u64 *word = (__u64 *)data + i;

		if (i < head_words) {
			if ((void *)(word + 1) > end)
				return 0;
			*word = head[i];
		}
	}
	if (scattered_bits)
		sequence = scattered_base | (sequence * SCATTER & scattered_bits);
	if (sequence_offset != NO_OFFSET) {
		/* Constants, but the verifier wants to see the bound of a packet's offset. */
		__u64 *place = data + (sequence_offset & 0xfff);
		__u64 wire = bpf_cpu_to_be64(sequence);

		if ((void *)(place + 1) > end)
			return 0;
		*place = wire;
		if (checksum_offset != NO_OFFSET) {
			__u16 *check = data + (checksum_offset & 0xfff);
			__u32 sum = base_sum;

			if ((void *)(check + 1) > end)
				return 0;
			sum += (wire & 0xffff) + (wire >> 16 & 0xffff) + (wire >> 32 & 0xffff) +
			       (wire >> 48);
			sum = (__u16)~fold(sum);
			*check = sum ? sum : 0xffff;
		}
	}
	return 1;
}

SEC("xdp")
int ringside_gen(struct xdp_md *ctx)
{
	struct progress *run;
	__u32 zero = 0;
	int action;

	run = bpf_map_lookup_elem(&progress, &zero);
	if (!run)
		return XDP_ABORTED;
	if (!run->task)
		run->task = bpf_get_current_task();
	if (is_over(run)) {
		run->skipped++;
		return XDP_DROP;
	}
	if (!fill(ctx, run->sequence))
		return XDP_ABORTED;
	action = bpf_redirect_map(&out, 0, 0);
	if (action == XDP_REDIRECT) {
		run->sequence++;
		run->redirected++;
	}
	return action;
}

/* What is read of the kernel's own structure; its real layout is found when loading. */
struct net_device {
	int ifindex;
} __attribute__((preserve_access_index));

/*
 * Called once for each bulk of up to 16 frames, in the thread that sends. Other
 * bulks may leave in the same thread from a softirq on top of it, but those do
 * not come from the loopback device.
 */
SEC("tp_btf/xdp_devmap_xmit")
int BPF_PROG(ringside_sent, const struct net_device *from, const struct net_device *to, int sent,
	     int drops, int err)
{
	struct progress *run;
	__u32 zero = 0;

	run = bpf_map_lookup_elem(&progress, &zero);
	if (!run || !run->task || run->task != bpf_get_current_task())
		return 0;
	if (from->ifindex != LOOPBACK_IFINDEX || to->ifindex != (int)out_ifindex)
		return 0;
	run->transmitted += sent > 0 ? sent : 0;
	run->dropped += drops > 0 ? drops : 0;
	if (err < 0) {
		run->failed++;
		run->error = -err;
	}
	return 0;
}

/* Tracing helpers ask for the GPL. */
char LICENSE[] SEC("license") = "Dual MIT/GPL";
