// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * How many packets each packet finds waiting in the ring of a TAP device, on its way to whoever is behind the device: a guest. The kernel
 * has no counter for it.
 *
 * By the tracepoints at the two ways there: what the stack sends, and what XDP redirects.
 */
#include "tun.h"

/* As in rings.rs. */
#define BUCKETS 65

/* What is read of the kernel's, found by names. */
struct sk_buff {
	__u16 queue_mapping;
} __attribute__((preserve_access_index));

struct net___5_12 {
	__u64 net_cookie;
} __attribute__((preserve_access_index));

/* Inodes of namespaces are given again, cookies are not. */
struct device {
	__u64 namespace;
	__u64 ifindex;
};

/* Rust reads it as u64 in this order. */
struct seen {
	__u64 packets;
	__u64 waiting; /* the sum of what each found */
	__u64 full;    /* found no room */
	__u64 most;
	__u64 size;
	__u64 buckets[BUCKETS]; /* by what was taken of the ring, in 64ths */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 256);
	__type(key, struct device);
	__type(value, struct seen);
} rings SEC(".maps");

/* A new entry begins as this, which is too long for the stack. */
static const struct seen nothing;

static __always_inline int is_tun(const struct net_device *dev)
{
	const struct rtnl_link_ops *ops = BPF_CORE_READ(dev, rtnl_link_ops);
	char kind[4] = {};

	return ops && bpf_probe_read_kernel_str(kind, sizeof(kind), BPF_CORE_READ(ops, kind)) == 4 && kind[0] == 't' &&
	       kind[1] == 'u' && kind[2] == 'n';
}

/* `added` of the packets are in the ring already; those that are not found no room. */
static __always_inline void see(const struct net_device *dev, __u32 queue, __u64 packets, __u64 added)
{
	/* Behind the structure, aligned to NETDEV_ALIGN: https://elixir.bootlin.com/linux/v6.18/C/ident/netdev_priv */
	struct tun_struct *tun = (void *)(long)dev + ((bpf_core_type_size(struct net_device) + 31) & ~31ull);
	__u32 queues = BPF_CORE_READ(tun, numqueues);
	struct net___5_12 *net = (void *)BPF_CORE_READ(dev, nd_net.net);
	struct device device = {
		.namespace = BPF_CORE_READ(net, net_cookie),
		.ifindex = BPF_CORE_READ(dev, ifindex),
	};
	struct tun_file *file;
	__s64 found, size;
	__u64 waiting;
	__u64 bucket, at;
	struct seen *seen;
	int producer;
	void **places, *slot;

	if (!queues)
		return;
	/* As the driver chooses. With clang 18 the verifier has a bound of the lower half only, unless
	 * all 64 bits are compared. */
	queue %= queues;
	at = queue;
	barrier_var(at);
	if (at >= MAX_QUEUES ||
	    bpf_core_read(&file, sizeof(file), &tun->tfiles[at]) || !file)
		return;
	size = BPF_CORE_READ(file, tx_ring.size);
	producer = BPF_CORE_READ(file, tx_ring.producer);
	found = producer - BPF_CORE_READ(file, tx_ring.consumer_head);
	if (size <= 0)
		return;
	waiting = found < 0 ? found + size : found;
	/* Full and empty look the same, but for what lies in the next place. */
	places = BPF_CORE_READ(file, tx_ring.queue);
	if (bpf_probe_read_kernel(&slot, sizeof(slot), places + producer))
		return;
	if (!waiting && slot)
		waiting = size;
	waiting = waiting < added ? 0 : waiting - added;

	seen = bpf_map_lookup_elem(&rings, &device);
	if (!seen) {
		bpf_map_update_elem(&rings, &device, &nothing, BPF_NOEXIST);
		seen = bpf_map_lookup_elem(&rings, &device);
		if (!seen)
			return;
	}
	seen->packets += packets;
	seen->waiting += waiting * packets;
	seen->size = size;
	if (added)
		seen->full += packets - added;
	else if (slot)
		seen->full += packets;
	if (seen->most < waiting)
		seen->most = waiting;
	bucket = waiting * (BUCKETS - 1) / (__u64)size;
	if (bucket < BUCKETS)
		seen->buckets[bucket] += packets;
}

/* Before the driver gets it. */
SEC("tp_btf/net_dev_start_xmit")
int BPF_PROG(ringside_tapskb, const struct sk_buff *skb, const struct net_device *dev)
{
	if (is_tun(dev))
		see(dev, BPF_CORE_READ(skb, queue_mapping), 1, 0);
	return 0;
}

/* After the driver got a burst: of what is there now, so many were not before. */
SEC("tp_btf/xdp_devmap_xmit")
int BPF_PROG(ringside_tapxdp, const struct net_device *from, const struct net_device *to, int sent, int drops)
{
	if (is_tun(to) && sent >= 0 && drops >= 0)
		see(to, bpf_get_smp_processor_id(), sent + drops, sent);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
