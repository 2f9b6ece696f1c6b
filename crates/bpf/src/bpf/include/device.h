/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Of the kernel's types what tracing programs read to name an interface, found in the running
 * kernel by names. Needs no kernel headers: not to be included beside linux/netdevice.h.
 */
#ifndef RINGSIDE_DEVICE_H
#define RINGSIDE_DEVICE_H

#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

struct ns_common {
	unsigned int inum;
} __attribute__((preserve_access_index));

struct net {
	struct ns_common ns;
} __attribute__((preserve_access_index));

typedef struct {
	struct net *net;
} __attribute__((preserve_access_index)) possible_net_t;

struct rtnl_link_ops {
	const char *kind;
} __attribute__((preserve_access_index));

struct netdev_rx_queue {
	/* Where RPS is built in: its CPUs. */
	void *rps_map;
} __attribute__((preserve_access_index));

struct net_device {
	int ifindex;
	struct netdev_rx_queue *_rx;
	unsigned int real_num_rx_queues;
	possible_net_t nd_net;
	const struct rtnl_link_ops *rtnl_link_ops;
} __attribute__((preserve_access_index));

#endif
