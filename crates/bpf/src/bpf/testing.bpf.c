// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * What tests of AF_XDP sockets need of an XDP program, one program a need.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_helpers.h>

/* The number of a test packet lies behind its Ethernet header, in network byte order: its lowest byte. */
#define NUMBER (ETH_HLEN + 7)

/* Sockets that packets are spread over. */
const volatile __u32 sockets = 1;

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, __u32);
} test_xsks SEC(".maps");

/* Packet n goes to the socket at place n mod sockets, whatever queue it came on. */
SEC("xdp")
int steer(struct xdp_md *ctx)
{
	__u8 *data = (void *)(long)ctx->data;

	if ((void *)(data + NUMBER + 1) > (void *)(long)ctx->data_end)
		return XDP_PASS;
	return bpf_redirect_map(&test_xsks, data[NUMBER] % sockets, XDP_PASS);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
