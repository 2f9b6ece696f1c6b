/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Of the kernel's types what tracing programs read of TAP devices, found in the running kernel by names.
 */
#ifndef RINGSIDE_TUN_H
#define RINGSIDE_TUN_H

#include "device.h"

#define MAX_QUEUES 256

struct tun_struct;

struct ptr_ring {
	int producer;
	int consumer_head;
	int size;
	void **queue;
} __attribute__((preserve_access_index));

/* A queue of a device. It begins with its socket. */
struct tun_file {
	struct tun_struct *tun;
	struct ptr_ring tx_ring;
} __attribute__((preserve_access_index));

struct tun_struct {
	struct tun_file *tfiles[MAX_QUEUES];
	unsigned int numqueues;
	struct net_device *dev;
} __attribute__((preserve_access_index));

#endif
