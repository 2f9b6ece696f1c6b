/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What the driver of a NIC tells an XDP program about a packet: three functions
 * of the kernel. Each answers 0, or -EOPNOTSUPP where the driver cannot tell, or
 * -ENODATA where it has nothing about this packet.
 *
 *	__u64 time;
 *
 *	if (!bpf_xdp_metadata_rx_timestamp(ctx, &time) && time)
 *		hints->hw_time = time;
 *
 * A time of 0 is none, whatever the answer was: a veth's is always 0.
 *
 * A program that calls one of them has to be loaded for one device, and is
 * attached natively. `ringside rx DEV --program FILE` and `program_file` of
 * libringside do so. Linux 6.3, the VLAN tag 6.8.
 * https://docs.kernel.org/networking/xdp-rx-metadata.html
 */
#ifndef RINGSIDE_NIC_H
#define RINGSIDE_NIC_H

#include <bpf/bpf_helpers.h>

#ifndef __VMLINUX_H__
#include <linux/bpf.h>

/* The kernel's own, of which only the name and the size matter here. */
enum xdp_rss_hash_type {
	XDP_RSS_TYPE_NONE,
};
#endif

/* When the NIC received the packet, in ns of its own clock. */
extern int bpf_xdp_metadata_rx_timestamp(const struct xdp_md *ctx, __u64 *timestamp) __ksym;

/* The hash by which the NIC chose the queue, and what was hashed. */
extern int bpf_xdp_metadata_rx_hash(const struct xdp_md *ctx, __u32 *hash,
				    enum xdp_rss_hash_type *type) __ksym;

/* The VLAN tag that the NIC took off the packet. */
extern int bpf_xdp_metadata_rx_vlan_tag(const struct xdp_md *ctx, __be16 *proto,
					__u16 *tci) __ksym;

#endif
