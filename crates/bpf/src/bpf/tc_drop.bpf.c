// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Drops behind the packet taps and before the IP stack: AF_PACKET sockets see
 * everything, UDP and TCP nothing. It is the best set-up of an AF_PACKET
 * receiver, which otherwise pays for the stack working on each packet too.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include "traffic.h"

/* Not 0: only UDP to this port, without VLAN tags and IPv6 extension headers. */
const volatile __u32 only_udp_port = 0;

static __always_inline int is_wanted(struct __sk_buff *skb)
{
	__u8 version_and_length, protocol;
	__be16 type, port;
	__u32 at = ETH_HLEN;

	if (bpf_skb_load_bytes(skb, ETH_HLEN - 2, &type, sizeof(type)))
		return 0;
	if (type == bpf_htons(ETH_P_IP)) {
		if (bpf_skb_load_bytes(skb, at, &version_and_length, 1) ||
		    bpf_skb_load_bytes(skb, at + 9, &protocol, 1))
			return 0;
		at += (version_and_length & 0x0f) * 4;
	} else if (type == bpf_htons(ETH_P_IPV6)) {
		if (bpf_skb_load_bytes(skb, at + 6, &protocol, 1))
			return 0;
		at += 40;
	} else {
		return 0;
	}
	return protocol == IPPROTO_UDP && !bpf_skb_load_bytes(skb, at + 2, &port, sizeof(port)) &&
	       port == bpf_htons(only_udp_port);
}

SEC("tc")
int ringside_drop(struct __sk_buff *skb)
{
	struct traffic *seen = traffic();

	if (only_udp_port && !is_wanted(skb)) {
		if (seen)
			seen->passed++;
		return TC_ACT_UNSPEC;
	}
	/* The link header is no longer part of the length here, but of the frame. */
	if (seen)
		count(seen, skb->len);
	return TC_ACT_SHOT;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
