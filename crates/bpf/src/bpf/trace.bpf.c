// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Tells when probes pass the points of their way through the kernel, and what else the CPUs do meanwhile.
 *
 * Each program is one hook, and does without the others: a kernel that lacks one has that point less.
 */
#include "trace_ring.h"

/* linux/interrupt.h: NET_RX_SOFTIRQ, since 2.6.27 */
#define NET_RX 3
/* linux/bpf.h: BPF_MAP_TYPE_XSKMAP, as the tracepoint tells it */
#define XSKMAP 17
/* linux/socket.h */
#define MSG_PEEK 2
#define AF_UNSPEC 0
#define AF_INET 2
#define AF_INET6 10
#define AF_PACKET 17
#define AF_XDP 44

/* Sockets that got probes. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, __u64);
	__type(value, __u8);
} sockets SEC(".maps");

/* UDP ports that probes come to: a reader that is awake takes the first one before its socket has told of it. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 256);
	__type(key, __u16);
	__type(value, __u8);
} ports SEC(".maps");

/* --- sending ------------------------------------------------------------------------------------------------------- */

SEC("tp_btf/net_dev_queue")
int BPF_PROG(trace_queue, struct sk_buff *skb)
{
	sending(skb, POINT_QUEUE);
	return 0;
}

SEC("tp_btf/net_dev_start_xmit")
int BPF_PROG(trace_xmit, const struct sk_buff *skb)
{
	sending(skb, POINT_TRANSMIT);
	return 0;
}

/* --- receiving ----------------------------------------------------------------------------------------------------- */

/* By the driver's interrupt, or by who sends into a veth. */
SEC("tp_btf/softirq_raise")
int BPF_PROG(trace_raise, unsigned int vec)
{
	struct here *here = this_cpu();

	if (here && vec == NET_RX && !here->raised_ns)
		here->raised_ns = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(trace_softirq, unsigned int vec)
{
	struct here *here = this_cpu();

	if (here && vec == NET_RX) {
		here->asked_ns = here->raised_ns;
		here->raised_ns = 0;
		here->softirq_ns = bpf_ktime_get_ns();
	}
	return 0;
}

/* What has come to no socket by now went elsewhere. */
static __always_inline void forget(struct here *here)
{
	if (!here->next)
		return;
	for (__u32 at = 0; at < COMING; at++)
		here->coming[at].port = 0;
	here->next = 0;
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(trace_softirq_end, unsigned int vec)
{
	struct here *here = this_cpu();

	if (here && vec == NET_RX) {
		here->softirq_ns = 0;
		here->asked_ns = 0;
		here->stack.kind = 0;
		here->is_ring = 0;
		here->is_stack = 0;
		here->is_generic = 0;
		here->is_waking = 0;
		here->named = NOT_NAMED;
		forget(here);
	}
	return 0;
}

/* Whether RPS puts what came to a device's queue on the backlog of a CPU. What only RFS takes, by flow, it does not see. */
static __always_inline int is_steered(const struct sk_buff *skb)
{
	const struct net_device *dev = skb->dev;
	/* One more than the queue; 0: nobody has said which. */
	__u32 queue = skb->queue_mapping;
	struct netdev_rx_queue *of = 0;

	if (!bpf_core_field_exists(of->rps_map))
		return 0;
	queue = queue ? queue - 1 : 0;
	if (queue >= dev->real_num_rx_queues)
		return 0;
	/* Read, not looked at: what comes from looking is a pointer, to which Linux 6.1 lets nothing be added. */
	of = (void *)((__u64)BPF_CORE_READ(dev, _rx) + queue * bpf_core_type_size(struct netdev_rx_queue));
	return BPF_CORE_READ(of, rps_map) != 0;
}

/* It goes on a backlog. */
SEC("tp_btf/netif_rx")
int BPF_PROG(trace_backlog, struct sk_buff *skb)
{
	receiving(skb, POINT_BACKLOG);
	return 0;
}

/* A driver without GRO hands it over, or a device on top of others: of interest where RPS takes it. */
SEC("tp_btf/netif_receive_skb_entry")
int BPF_PROG(trace_steered, const struct sk_buff *skb)
{
	if (is_steered(skb))
		receiving(skb, POINT_BACKLOG);
	return 0;
}

/* The driver's poll hands it over. RPS takes it as soon as GRO has done with it, which no hook tells. */
SEC("tp_btf/napi_gro_receive_entry")
int BPF_PROG(trace_driver, struct sk_buff *skb)
{
	receiving(skb, is_steered(skb) ? POINT_BACKLOG : POINT_DRIVER);
	return 0;
}

SEC("tp_btf/netif_receive_skb")
int BPF_PROG(trace_stack, struct sk_buff *skb)
{
	__u64 now = bpf_ktime_get_ns();
	struct here *here = this_cpu();
	struct probe probe;
	struct id id = {};
	__be16 net;
	__u16 port;
	__u8 one = 1;
	__u64 at;

	if (!here)
		return 0;
	here->is_waking = 0;
	here->is_generic = 0;
	here->is_stack = 1;
	here->stack.kind = 0;
	at = find_udp((__u64)skb->head + skb->mac_header);
	if (!at)
		return 0;
	if (is_probe(at, (__u64)skb->head + skb->tail, &probe)) {
		id = id_of(&probe);
		here->stack = id;
		tell_received(here, skb, &id, POINT_STACK, now);
	}
	/* Those that are no probes are in the sockets' queues, too. */
	if (bpf_probe_read_kernel(&net, sizeof(net), (void *)(at - 6)))
		return 0;
	port = bpf_ntohs(net);
	comes(here, skb, &id, port, now);
	if (id.kind && !bpf_map_lookup_elem(&ports, &port))
		bpf_map_update_elem(&ports, &port, &one, BPF_ANY);
	return 0;
}

/* Hit after the packet was put on the RX ring. It tells everything but which packet it was: that was seen by trace_xsk or
 * trace_xsk_generic, or else is known to who has the XDP program's time of it. */
SEC("tp_btf/xdp_redirect")
int BPF_PROG(trace_redirect, const struct net_device *dev, const void *program, const void *target, int err, __u32 map_type)
{
	__u64 now = bpf_ktime_get_ns();
	struct here *here = this_cpu();
	struct event *event;

	if (!here || map_type != XSKMAP)
		return 0;
	here->is_waking = 0;
	here->is_ring = !here->is_generic;
	here->is_generic = 0;
	switch (here->named) {
	case TOLD:
		here->named = NOT_NAMED;
		here->is_ring = 0;
		return 0;
	case NAMED:
		here->named = NOT_NAMED;
		break;
	default:
		here->ring.session = 0;
		here->ring.sequence = now;
		here->ring.kind = 0;
	}
	event = begin(here, POINT_SOCKET, &here->ring, now);
	if (!event)
		return 0;
	on_device(event, dev);
	received(here, event);
	tell(event);
	return 0;
}

/* --- from the socket to its reader --------------------------------------------------------------------------------- */

/* The packet that a UDP socket tells of: of those that come to its port the first, unless one is known to have come to its queue: then the last of these, for
 * the queue of the others was full. */
static __always_inline struct coming *come_to(struct here *here, const struct sock *sk, __u64 now)
{
	struct coming *found = 0;
	__u16 port = sk->__sk_common.skc_num;

	for (__u32 at = 0; at < COMING; at++) {
		__u32 next = here->next + at;
		struct coming *coming;

		/* The oldest one is where the next one is put. */
		barrier_var(next);
		next &= COMING - 1;
		coming = &here->coming[next];
		if (!port || coming->port != port || coming->ns + COMING_NS < now)
			continue;
		if (found && !coming->is_queued)
			continue;
		if (found && found->is_queued)
			found->port = 0;
		found = coming;
	}
	return found;
}

SEC("tp_btf/sk_data_ready")
int BPF_PROG(trace_ready, const struct sock *sk)
{
	__u64 now = bpf_ktime_get_ns();
	struct here *here = this_cpu();
	__u64 sock = (__u64)sk;
	struct coming *coming;
	struct event *event;
	struct id id = {};
	__u64 since = now;
	__u8 is_known = 0;
	__u8 one = 1;

	if (!here)
		return 0;
	here->is_waking = 0;
	switch (sk->__sk_common.skc_family) {
	case AF_INET:
	case AF_INET6:
		if (sk->sk_protocol != UDP)
			return 0;
		coming = come_to(here, sk, now);
		if (coming) {
			id = coming->id;
			since = coming->ns;
			coming->port = 0;
			is_known = id.kind != 0;
		}
		break;
	case AF_XDP:
		here->is_generic = !here->is_ring && here->is_stack;
		id = here->is_ring ? here->ring : here->stack;
		is_known = here->is_ring || id.kind;
		break;
	case AF_PACKET:
		id = here->stack;
		is_known = id.kind != 0;
		break;
	/* A TAP device's. */
	case AF_UNSPEC:
		put_in_ring(sk, now);
		return 0;
	default:
		return 0;
	}
	if (is_known) {
		here->is_waking = 1;
		here->waking = id;
		if (!bpf_map_lookup_elem(&sockets, &sock))
			bpf_map_update_elem(&sockets, &sock, &one, BPF_ANY);
	} else if (!bpf_map_lookup_elem(&sockets, &sock)) {
		return 0;
	} else {
		id.sequence = 0;
		id.session = 0;
		id.kind = 0;
	}
	event = begin(here, POINT_READY, &id, now);
	if (!event)
		return 0;
	event->extra[0] = sock;
	event->extra[1] = since;
	tell(event);
	return 0;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(trace_waking, struct task_struct *task)
{
	struct here *here = this_cpu();
	struct event *event;
	__u32 pid;
	__u64 now;

	if (!here || !here->is_waking)
		return 0;
	now = bpf_ktime_get_ns();
	here->is_waking = 0;
	pid = task->pid;
	bpf_map_update_elem(&awaited, &pid, &here->waking, BPF_ANY);
	event = begin(here, POINT_WAKING, &here->waking, now);
	if (!event)
		return 0;
	event->extra[0] = pid;
	tell(event);
	return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(trace_switch, _Bool preempt, struct task_struct *prev, struct task_struct *next)
{
	__u64 now = bpf_ktime_get_ns();
	struct here *here = this_cpu();
	struct event *event;
	__u32 pid = next->pid;
	struct id *id;

	if (!here || !pid)
		return 0;
	id = bpf_map_lookup_elem(&awaited, &pid);
	if (!id)
		return 0;
	event = begin(here, POINT_RUNNING, id, now);
	bpf_map_delete_elem(&awaited, &pid);
	if (!event)
		return 0;
	event->extra[0] = pid;
	tell(event);
	return 0;
}

SEC("tp_btf/skb_copy_datagram_iovec")
int BPF_PROG(trace_copy, const struct sk_buff *skb)
{
	copied(skb);
	return 0;
}

/*
 * UDP copies short packets without telling. Where trace_consumed cannot say which packet it was, it follows from the order in which the socket got them. A socket of another family
 * that is read may lie where an XDP or packet socket was, whose memory is nobody's own: netlink's, when a program is detached.
 */
SEC("tp_btf/sock_recv_length")
int BPF_PROG(trace_received, const struct sock *sk, int length, int flags)
{
	struct here *here;
	struct event *event;
	struct id id = {};
	__u16 family = sk->__sk_common.skc_family;
	__u64 sock = (__u64)sk;
	__u16 port;
	__u32 pid;

	if (length < 0 || flags & MSG_PEEK || (family != AF_INET && family != AF_INET6) || sk->sk_protocol != UDP)
		return 0;
	port = sk->__sk_common.skc_num;
	if (!bpf_map_lookup_elem(&sockets, &sock) && !bpf_map_lookup_elem(&ports, &port))
		return 0;
	here = this_cpu();
	if (!here)
		return 0;
	pid = bpf_get_current_pid_tgid();
	bpf_map_delete_elem(&awaited, &pid);
	event = begin(here, POINT_COPY, &id, bpf_ktime_get_ns());
	if (!event)
		return 0;
	event->extra[0] = sock;
	tell(event);
	return 0;
}

#include "trace_cpus.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";
