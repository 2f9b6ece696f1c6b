/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * For tracing programs that look at one interface alone.
 */
#ifndef RINGSIDE_ONE_DEVICE_H
#define RINGSIDE_ONE_DEVICE_H

#include "device.h"

/* Indexes of interfaces repeat from one network namespace to the next. */
const volatile __u32 namespace = 0;
const volatile __u32 ifindex = 0;

static __always_inline int is_it(const struct net_device *dev)
{
	return BPF_CORE_READ(dev, ifindex) == (int)ifindex &&
	       BPF_CORE_READ(dev, nd_net.net, ns.inum) == namespace;
}

#endif
