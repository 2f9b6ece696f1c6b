/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What the programs that count where packets land have in common: the classes, and the counters.
 */
#ifndef RINGSIDE_LANDING_H
#define RINGSIDE_LANDING_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/* As in landing.rs. */
#define MOST_CLASSES 16
#define MOST_QUEUES 64
#define WAYS 2
#define BY_PRIORITY 1
#define BY_UDP_PORT 2

#define NO_TAG (-1)

struct class {
	__u32 kind; /* 0: there is none */
	__u32 value;
};

const volatile struct class classes[MOST_CLASSES];

/* Way by way, class by class its queues; behind the classes those of all that is in none. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, WAYS * (MOST_CLASSES + 1) * MOST_QUEUES);
	__type(key, __u32);
	__type(value, __u64);
} landings SEC(".maps");

/* Counts a packet: its priority or NO_TAG, its UDP port or 0. */
static __always_inline void land(__s32 priority, __u32 port, __u32 queue, __u32 way)
{
	__u32 class = MOST_CLASSES, at;
	__u64 *count;

	for (__u32 i = 0; i < MOST_CLASSES; i++) {
		__u32 kind = classes[i].kind, value = classes[i].value;

		if ((kind == BY_PRIORITY && priority != NO_TAG && (__u32)priority == value) ||
		    (kind == BY_UDP_PORT && port == value)) {
			class = i;
			break;
		}
	}
	if (queue >= MOST_QUEUES)
		queue = MOST_QUEUES - 1;
	at = (way * (MOST_CLASSES + 1) + class) * MOST_QUEUES + queue;
	count = bpf_map_lookup_elem(&landings, &at);
	if (count)
		++*count;
}

#endif
