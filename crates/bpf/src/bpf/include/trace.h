/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What the tracing programs have in common: the few fields of the kernel's that they read, found in the running kernel's types
 * by their names, how a probe is recognised, and what is told of it.
 */
#ifndef RINGSIDE_TRACE_H
#define RINGSIDE_TRACE_H

#include "device.h"

#include <bpf/bpf_endian.h>

/* Points of a packet's way, as in trace/event.rs. */
enum point {
	POINT_QUEUE = 2,
	POINT_TRANSMIT = 3,
	POINT_DRIVER = 7,
	POINT_BACKLOG = 8,
	POINT_STACK = 9,
	POINT_SOCKET = 10,
	POINT_READY = 11,
	POINT_WAKING = 12,
	POINT_RUNNING = 13,
	POINT_COPY = 14,
	POINT_RING = 19,
	/* No points, but what the scheduler does with a task that is watched. */
	TASK_WOKEN = 64,
	TASK_ON = 65,
	TASK_OFF = 66,
};

struct proto {
	char name[32];
} __attribute__((preserve_access_index));

struct sock_common {
	unsigned short skc_family;
	__u16 skc_num;
	struct proto *skc_prot;
	possible_net_t skc_net;
} __attribute__((preserve_access_index));

struct sock {
	struct sock_common __sk_common;
	__u16 sk_protocol;
} __attribute__((preserve_access_index));

struct sk_buff {
	struct net_device *dev;
	unsigned char pkt_type : 3;
	__u16 queue_mapping;
	__u16 mac_header;
	unsigned int tail;
	unsigned char *head;
	unsigned char *data;
} __attribute__((preserve_access_index));

struct task_struct {
	int pid;
	char comm[16];
} __attribute__((preserve_access_index));

/* A point that a packet has passed; as in trace/event.rs. */
struct event {
	__u64 ns;
	__u64 sequence;
	/* queue and transmit: when it was to be sent, and when it was. driver, backlog, stack, socket, ring: when the soft interrupt was asked for,
	 * and when it began. waking, running, copy, and of watched tasks: which task. ready: which socket, and since when the packet can be in it. copy of kind 0: which
	 * socket. */
	__u64 extra[2];
	__u32 session;
	__u32 namespace;
	__u32 ifindex;
	__u16 cpu;
	__u8 point;
	/* of the probe: 1 a request, 2 a reply; 0: nobody looked into the packet. Then the sequence is when it was given to an XDP
	 * socket, or 0. */
	__u8 kind;
};

/* Whose probes. Not any: those of one session; one of so many. */
const volatile __u32 wanted_session = 0;
const volatile __u32 any_session = 1;
const volatile __u32 one_of = 1;

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 8 << 20);
} events SEC(".maps");

/* Which packet: a probe, or one that only its time tells apart. */
struct id {
	__u64 sequence;
	__u32 session;
	__u32 kind;
};

/* A UDP packet that the stack has taken, until its socket tells of it. */
struct coming {
	/* kind 0: it is no probe, or none that is wanted. */
	struct id id;
	__u64 skb;
	__u64 ns;
	/* 0: there is none here. */
	__u16 port;
	/* It is in the socket's queue. */
	__u8 is_queued;
};

/* What a driver hands over in a list comes to the sockets only when the stack has seen all of it: the kernel's lists have 8 packets by default
 * (net.core.gro_normal_batch). A power of two. */
#define COMING 16
/* What has come to no socket for so long does not any more. */
#define COMING_NS 50000000

/* What goes on on this CPU. */
struct here {
	/* Events for which a ring had no room. First: it is read by its place. */
	__u64 lost;
	/* NET_RX was asked for, and does not run yet; 0: it was not. */
	__u64 raised_ns;
	/* It runs since, and was asked for then; 0: it does not. */
	__u64 softirq_ns;
	__u64 asked_ns;
	/* The last packet of each kind, with kind 0 where it was no probe: that the stack took, which packet sockets get at once; that was given to an
	 * XDP socket. */
	struct id stack;
	struct id ring;
	/* UDP packets that are on their way through the stack; where the next one is put, and how many were since the soft interrupt began. */
	struct coming coming[COMING];
	__u32 next;
	/* The packet whose readers are being woken up. */
	struct id waking;
	/* They are. */
	__u8 is_waking;
	/* `ring` has one. */
	__u8 is_ring;
	/* The stack has taken something since the soft interrupt began. */
	__u8 is_stack;
	/* An XDP socket told of what the stack has taken: generic XDP, which tells that it has put it on the ring only then. */
	__u8 is_generic;
	/* What is given to an XDP socket was looked into: an enum named. */
	__u8 named;
	/* What may be in a packet's way, since when. */
	__u64 irq_ns;
	__u64 vector_ns;
	__u64 soft_ns[16];
	__u64 switch_ns;
	__u64 idle_ns;
	__u32 idle_state;
};

enum named {
	NOT_NAMED,
	/* It is the probe in `ring`, and not on the ring yet. */
	NAMED,
	/* It has been told of already. */
	TOLD,
};

/* Readers that were woken up for a probe, and do not run yet. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct id);
} awaited SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct here);
} cpus SEC(".maps");

static __always_inline struct here *this_cpu(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&cpus, &zero);
}

/* crates/measure/src/probe.rs */
struct probe {
	__be32 magic;
	__u8 version;
	__u8 kind;
	__u8 clock;
	__u8 flags;
	__be32 session;
	__be32 reserved;
	__be64 sequence;
	__be64 intended;
	__be64 sent;
};

#define PROBE_MAGIC bpf_htonl(0x52534450)
#define CLOCK_MONOTONIC_ON_WIRE 1
#define UDP 17

/* Where the data of a UDP packet begins in an Ethernet frame, 0 if it is none. What is read may be anything: only the helper follows addresses. */
static __always_inline __u64 find_udp(__u64 frame)
{
	__u8 head[22];
	__u64 at = frame + 12;
	__u16 type;

	if (bpf_probe_read_kernel(head, sizeof(head), (void *)at))
		return 0;
	type = head[0] << 8 | head[1];
	if (type == 0x8100 || type == 0x88a8) {
		at += 4;
		if (bpf_probe_read_kernel(head, sizeof(head), (void *)at))
			return 0;
		type = head[0] << 8 | head[1];
	}
	if (type == 0x0800) {
		/* Of a fragment only the first has the header, and then not the whole packet. */
		if (head[2 + 9] != UDP || (head[2 + 6] & 0x3f) | head[2 + 7])
			return 0;
		at += 2 + (head[2] & 15) * 4 + 8;
	} else if (type == 0x86dd && head[2 + 6] == UDP) {
		at += 2 + 40 + 8;
	} else {
		return 0;
	}
	return at;
}

/* Whether data of a UDP packet is a wanted probe. */
static __always_inline int is_probe(__u64 at, __u64 end, struct probe *probe)
{
	if (at + sizeof(*probe) > end || bpf_probe_read_kernel(probe, sizeof(*probe), (void *)at))
		return 0;
	if (probe->magic != PROBE_MAGIC || probe->version != 1 || (probe->kind != 1 && probe->kind != 2))
		return 0;
	if (!any_session && bpf_ntohl(probe->session) != wanted_session)
		return 0;
	return one_of < 2 || bpf_be64_to_cpu(probe->sequence) % one_of == 0;
}

/* The probe in an Ethernet frame, if there is a wanted one. */
static __always_inline int find_probe(__u64 frame, __u64 end, struct probe *probe)
{
	__u64 at = find_udp(frame);

	return at && is_probe(at, end, probe);
}

static __always_inline struct id id_of(const struct probe *probe)
{
	struct id id = {
		.sequence = bpf_be64_to_cpu(probe->sequence),
		.session = bpf_ntohl(probe->session),
		.kind = probe->kind,
	};

	return id;
}

static __always_inline struct event *begin(struct here *here, __u8 point, const struct id *id, __u64 now)
{
	struct event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);

	if (!event) {
		here->lost++;
		return 0;
	}
	event->ns = now;
	event->sequence = id->sequence;
	event->extra[0] = 0;
	event->extra[1] = 0;
	event->session = id->session;
	event->namespace = 0;
	event->ifindex = 0;
	event->cpu = bpf_get_smp_processor_id();
	event->point = point;
	event->kind = id->kind;
	return event;
}

/* Its reader looks for itself, often enough. */
static __always_inline void tell(struct event *event)
{
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
}

static __always_inline void on_device(struct event *event, const struct net_device *dev)
{
	event->ifindex = dev->ifindex;
	event->namespace = dev->nd_net.net->ns.inum;
}

/* Something that is received was found by the soft interrupt that runs. */
static __always_inline void received(struct here *here, struct event *event)
{
	event->extra[0] = here->asked_ns;
	event->extra[1] = here->softirq_ns;
}

/* A packet is not on its way to a socket any more. Few branches: the verifier walks them for each place. */
static __always_inline void goes(struct here *here, __u64 skb)
{
	for (__u32 at = 0; at < COMING; at++)
		if (here->coming[at].skb == skb)
			here->coming[at].port = 0;
}

/* The place of a packet among those that are coming, emptied if it has been there before: it passes several devices. */
static __always_inline struct coming *place_of(struct here *here, __u64 skb, const struct id *id)
{
	__u32 at;

	goes(here, skb);
	if (id->kind)
		for (at = 0; at < COMING; at++) {
			struct id *old = &here->coming[at].id;

			if (((old->sequence ^ id->sequence) | (old->session ^ id->session) | (old->kind ^ id->kind)) == 0)
				here->coming[at].port = 0;
		}
	at = here->next++;
	/* The verifier shall see the bound, and not what the compiler made of it. */
	barrier_var(at);
	at &= COMING - 1;
	return &here->coming[at];
}

/* A UDP packet is on its way to the socket of a port. */
static __always_inline struct coming *comes(struct here *here, const struct sk_buff *skb, const struct id *id, __u16 port, __u64 now)
{
	struct coming *coming = place_of(here, (__u64)skb, id);

	coming->id = *id;
	coming->skb = (__u64)skb;
	coming->ns = now;
	coming->port = port;
	coming->is_queued = 0;
	return coming;
}

static __always_inline int skb_probe(const struct sk_buff *skb, __u64 frame, struct probe *probe)
{
	return find_probe(frame, (__u64)skb->head + skb->tail, probe);
}

/* Sending: the frame begins where the data does. */
static __always_inline void sending(const struct sk_buff *skb, __u8 point)
{
	__u64 now = bpf_ktime_get_ns();
	struct here *here = this_cpu();
	struct event *event;
	struct probe probe;
	struct id id;

	if (!here)
		return;
	if (here->next)
		goes(here, (__u64)skb);
	if (!skb_probe(skb, (__u64)skb->data, &probe))
		return;
	id = id_of(&probe);
	event = begin(here, point, &id, now);
	if (!event)
		return;
	on_device(event, skb->dev);
	if (probe.kind == 1 && probe.clock == CLOCK_MONOTONIC_ON_WIRE) {
		event->extra[0] = bpf_be64_to_cpu(probe.intended);
		event->extra[1] = bpf_be64_to_cpu(probe.sent);
	}
	tell(event);
}

static __always_inline void tell_received(struct here *here, const struct sk_buff *skb, const struct id *id, __u8 point, __u64 now)
{
	struct event *event = begin(here, point, id, now);

	if (!event)
		return;
	on_device(event, skb->dev);
	received(here, event);
	tell(event);
}

/* Receiving: whoever holds it now hands it on. */
static __always_inline void receiving(const struct sk_buff *skb, __u8 point)
{
	__u64 now = bpf_ktime_get_ns();
	struct here *here = this_cpu();
	struct probe probe;
	struct id id;

	if (!here || !skb_probe(skb, (__u64)skb->head + skb->mac_header, &probe))
		return;
	id = id_of(&probe);
	tell_received(here, skb, &id, point, now);
}

/* A reader has it. */
static __always_inline void copied(const struct sk_buff *skb)
{
	__u64 now = bpf_ktime_get_ns();
	struct here *here = this_cpu();
	struct event *event;
	struct probe probe;
	/* What an XDP socket has sent into a TAP device has no mark where its frame begins: it is where the data does. */
	__u64 frame = skb->mac_header == 0xffff ? (__u64)skb->data : (__u64)skb->head + skb->mac_header;
	struct id id;
	__u32 pid;

	if (!here || !skb_probe(skb, frame, &probe))
		return;
	/* Who was woken up while it ran is not switched to. */
	pid = bpf_get_current_pid_tgid();
	bpf_map_delete_elem(&awaited, &pid);
	id = id_of(&probe);
	event = begin(here, POINT_COPY, &id, now);
	if (!event)
		return;
	event->extra[0] = pid;
	tell(event);
}

#endif
