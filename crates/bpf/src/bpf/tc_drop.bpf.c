// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Drops behind the packet taps and before the IP stack: AF_PACKET sockets see
 * everything, UDP and TCP nothing. It is the best set-up of an AF_PACKET
 * receiver, which otherwise pays for the stack working on each packet too.
 */
#include <linux/pkt_cls.h>
#include "traffic.h"

SEC("tc")
int ringside_drop(struct __sk_buff *skb)
{
	struct traffic *seen = traffic();

	/* The link header is no longer part of the length here, but of the frame. */
	if (seen)
		count(seen, skb->len);
	return TC_ACT_SHOT;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
