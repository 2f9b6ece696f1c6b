/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* What sinks, reflectors and ingress drops count. */
#ifndef RINGSIDE_TRAFFIC_H
#define RINGSIDE_TRAFFIC_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/* Rust reads it as three u64 in this order. */
struct traffic {
	__u64 packets;
	__u64 bytes;
	__u64 passed;
};

/* Per CPU, hence without atomics: softirq does not preempt softirq on a CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct traffic);
} counters SEC(".maps");

static __always_inline struct traffic *traffic(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&counters, &zero);
}

static __always_inline void count(struct traffic *traffic, __u64 bytes)
{
	traffic->packets++;
	traffic->bytes += bytes;
}

#endif
