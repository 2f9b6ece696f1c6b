// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * What tests of AF_XDP sockets need of an XDP program, one program a need.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/*
 * The number of a test packet lies behind its Ethernet header, in network byte order: its lowest byte. In one of IPv4 it is in place of both
 * addresses.
 */
#define NUMBER (ETH_HLEN + 7)
#define NUMBER_IPV4 (ETH_HLEN + 12 + 7)

/* steer: sockets that packets are spread over. uneven: one packet in as many goes to the second socket. */
const volatile __u32 sockets = 1;
/* by_length: packets of more bytes go to the second socket. */
const volatile __u32 border = 0;
/* adjust_tail: bytes that a packet gets or, negative, loses at its end. */
const volatile __s32 adjust_by = 0;

/* Packets that drop_half or count_in_front has seen. */
__u64 seen = 0;
/* What bpf_xdp_adjust_tail() answered last. */
__s64 adjusted = 0;

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, __u32);
} test_xsks SEC(".maps");

static __always_inline int number_of(const struct xdp_md *ctx)
{
	__u8 *data = (void *)(long)ctx->data;

	if ((void *)(data + NUMBER + 1) > (void *)(long)ctx->data_end)
		return -1;
	/* ETH_P_IP */
	if (data[ETH_ALEN * 2] != 0x08 || data[ETH_ALEN * 2 + 1] != 0x00)
		return data[NUMBER];
	if ((void *)(data + NUMBER_IPV4 + 1) > (void *)(long)ctx->data_end)
		return -1;
	return data[NUMBER_IPV4];
}

/* Packet n goes to the socket at place n mod sockets, whatever queue it came on. */
SEC("xdp")
int steer(struct xdp_md *ctx)
{
	int number = number_of(ctx);

	if (number < 0)
		return XDP_PASS;
	return bpf_redirect_map(&test_xsks, (__u32)number % sockets, XDP_PASS);
}

/* Of every so many packets the last goes to the socket at place 1, all others to the one at place 0. */
SEC("xdp")
int uneven(struct xdp_md *ctx)
{
	int number = number_of(ctx);

	if (number < 0)
		return XDP_PASS;
	return bpf_redirect_map(&test_xsks, (__u32)number % sockets == sockets - 1, XDP_PASS);
}

/* Short packets go to the socket at place 0, long ones to the one at place 1. */
SEC("xdp")
int by_length(struct xdp_md *ctx)
{
	return bpf_redirect_map(&test_xsks, ctx->data_end - ctx->data > border, XDP_PASS);
}

/* Every second packet is dropped, whatever queue it came on. */
SEC("xdp")
int drop_half(struct xdp_md *ctx)
{
	if (__sync_fetch_and_add(&seen, 1) % 2)
		return XDP_DROP;
	return bpf_redirect_map(&test_xsks, ctx->rx_queue_index, XDP_PASS);
}

/* In front of each packet lies how many came before it. */
SEC("xdp")
int count_in_front(struct xdp_md *ctx)
{
	__u64 *front;

	if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(*front)))
		return XDP_ABORTED;
	front = (void *)(long)ctx->data_meta;
	if ((void *)(front + 1) > (void *)(long)ctx->data)
		return XDP_ABORTED;
	*front = __sync_fetch_and_add(&seen, 1);
	return bpf_redirect_map(&test_xsks, ctx->rx_queue_index, XDP_PASS);
}

/* Packets get longer or shorter at their end; those with which that cannot be done are dropped. */
SEC("xdp")
int adjust_tail(struct xdp_md *ctx)
{
	adjusted = bpf_xdp_adjust_tail(ctx, adjust_by);
	if (adjusted)
		return XDP_DROP;
	return bpf_redirect_map(&test_xsks, ctx->rx_queue_index, XDP_PASS);
}

/* Nothing at all. */
SEC("xdp")
int pass(struct xdp_md *ctx)
{
	return XDP_PASS;
}

/* What is counted as an exception, and as a redirect that fails with EINVAL: there is no such interface. */
SEC("xdp")
int aborts(struct xdp_md *ctx)
{
	return XDP_ABORTED;
}

SEC("xdp")
int astray(struct xdp_md *ctx)
{
	return bpf_redirect(0x7fffffff, 0);
}

/* What leaves by an interface gets a VLAN tag, if one is told, and leaves by the given transmit queue. */
const volatile __u16 vlan_tci = 0;
const volatile __u16 transmit_queue = 0;

SEC("tcx/egress")
int direct(struct __sk_buff *skb)
{
	if (vlan_tci && bpf_skb_vlan_push(skb, bpf_htons(ETH_P_8021Q), vlan_tci))
		return TC_ACT_SHOT;
	/* Counted from 1; 0 is for none. */
	skb->queue_mapping = transmit_queue + 1;
	return TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
