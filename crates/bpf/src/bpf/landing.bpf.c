// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Counts what arrives, by class, receive queue and CPU, behind RPS and in front of the IP stack, and lets it pass.
 *
 * Here the tag of a VLAN is out of the packet whether the NIC or the stack has taken it, and the CPU is the one that the stack works on.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "landing.h"

/* Not 0: UDP from this port is the counter's own, and is dropped when it is counted. */
const volatile __u32 own_udp_port = 0;

/* Source and destination, in two times 16 bits; 0 for what is not UDP, and for all but the first fragment. */
static __always_inline __u32 udp_ports(struct __sk_buff *skb)
{
	__u8 version_and_length, protocol;
	__be16 type, fragment;
	__be32 ports;
	__u32 at = ETH_HLEN;

	if (bpf_skb_load_bytes(skb, ETH_HLEN - 2, &type, sizeof(type)))
		return 0;
	if (type == bpf_htons(ETH_P_IP)) {
		if (bpf_skb_load_bytes(skb, at, &version_and_length, 1) ||
		    bpf_skb_load_bytes(skb, at + 6, &fragment, sizeof(fragment)) ||
		    bpf_skb_load_bytes(skb, at + 9, &protocol, 1))
			return 0;
		if (fragment & bpf_htons(0x1fff))
			return 0;
		at += (version_and_length & 0x0f) * 4;
	} else if (type == bpf_htons(ETH_P_IPV6)) {
		if (bpf_skb_load_bytes(skb, at + 6, &protocol, 1))
			return 0;
		at += 40;
	} else {
		return 0;
	}
	if (protocol != IPPROTO_UDP || bpf_skb_load_bytes(skb, at, &ports, sizeof(ports)))
		return 0;
	return bpf_ntohl(ports);
}

SEC("tc")
int ringside_landing(struct __sk_buff *skb)
{
	__s32 priority = skb->vlan_present ? (__s32)(skb->vlan_tci >> 13 & 7) : NO_TAG;
	__u32 ports = udp_ports(skb);
	/* What a driver records is the queue's number and one. */
	__u32 queue = skb->queue_mapping;

	land(priority, ports & 0xffff, queue > 0 ? queue - 1 : 0, 0);
	return own_udp_port && ports >> 16 == own_udp_port ? TC_ACT_SHOT : TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
