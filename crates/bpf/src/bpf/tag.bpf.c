// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Gives what leaves for one UDP port a VLAN tag with a priority, and the same
 * priority to queueing disciplines: what a VLAN device and SO_PRIORITY do
 * together, without a VLAN device. IPv4 without fragments; all else passes as
 * it is.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* VLAN 0: the tag is for its priority alone, and the other end needs no VLAN device. */
const volatile __u16 priority = 0;
const volatile __u16 udp_port = 0;

#define PRIORITY_SHIFT 13
/* More fragments, or not the first. */
#define FRAGMENT 0x3fff

static __always_inline int is_wanted(struct __sk_buff *skb)
{
	__u8 version_and_length, protocol;
	__be16 fragment, port;
	__u32 at = ETH_HLEN;

	if (skb->protocol != bpf_htons(ETH_P_IP) || skb->vlan_present ||
	    bpf_skb_load_bytes(skb, at, &version_and_length, 1) ||
	    bpf_skb_load_bytes(skb, at + 6, &fragment, sizeof(fragment)) ||
	    bpf_skb_load_bytes(skb, at + 9, &protocol, 1))
		return 0;
	at += (version_and_length & 0x0f) * 4;
	return protocol == IPPROTO_UDP && !(fragment & bpf_htons(FRAGMENT)) &&
	       !bpf_skb_load_bytes(skb, at + 2, &port, sizeof(port)) && port == bpf_htons(udp_port);
}

SEC("tcx/egress")
int ringside_tag(struct __sk_buff *skb)
{
	if (!is_wanted(skb))
		return TC_ACT_UNSPEC;
	skb->priority = priority;
	if (bpf_skb_vlan_push(skb, bpf_htons(ETH_P_8021Q), priority << PRIORITY_SHIFT))
		return TC_ACT_SHOT;
	return TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
