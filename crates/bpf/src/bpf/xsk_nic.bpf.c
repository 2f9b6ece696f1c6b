// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Steers packets into the AF_XDP sockets of one interface, and puts in front of
 * them what its NIC knows. The functions that ask the driver can only be called
 * by a program that is loaded for that device, and the metadata is longer than 32
 * bytes: Linux 6.8. An object of its own, for libbpf reads the whole BTF of the
 * kernel to find those functions.
 * https://docs.kernel.org/networking/xdp-rx-metadata.html
 */
#include "steer.h"
#include "ringside/nic.h"

/* What the driver has told about a packet. Rust has the same numbers: hints/nic.rs. */
enum told {
	TOLD_TIME = 1,
	TOLD_HASH = 2,
	TOLD_VLAN = 4,
	TOLD_ZERO = 8, /* it had a time, said the driver, but the time was 0 */
};

struct ringside_nic {
	__u64 hw_time; /* ns of the NIC's clock */
	__u64 rx_ktime; /* from here on as struct ringside_rx */
	__u64 packet;
	__u32 hash;
	__u32 hash_type; /* enum xdp_rss_hash_type */
	__u16 vlan_proto; /* host byte order */
	__u16 vlan_tci;
	__u32 told; /* which of these are valid */
	__u32 rx_cpu;
	__u32 rx_queue;
	__u32 mark;
	__u32 btf_id;
} RINGSIDE_HINTS;

/* Its id; that of struct ringside_rx, and the mark, are in hints_wanted. */
const volatile struct ringside_nic nic_hints_wanted = {};

static __always_inline void tell(struct xdp_md *ctx, __u64 packet)
{
	struct ringside_nic *hints = ringside_hints(ctx, struct ringside_nic);
	enum xdp_rss_hash_type hash_type = XDP_RSS_TYPE_NONE;
	__be16 vlan_proto = 0;
	__u16 vlan_tci = 0;
	__u64 hw_time = 0;
	__u32 hash = 0;
	__u32 told = 0;

	/* A driver that has less room may still have enough for the others. */
	if (!hints) {
		tell_rx(ctx, packet);
		return;
	}
	hints->rx_ktime = bpf_ktime_get_ns();
	if (!bpf_xdp_metadata_rx_timestamp(ctx, &hw_time))
		told |= hw_time ? TOLD_TIME : TOLD_ZERO;
	if (!bpf_xdp_metadata_rx_hash(ctx, &hash, &hash_type))
		told |= TOLD_HASH;
	if (!bpf_xdp_metadata_rx_vlan_tag(ctx, &vlan_proto, &vlan_tci))
		told |= TOLD_VLAN;
	hints->hw_time = hw_time;
	hints->packet = packet;
	hints->hash = hash;
	hints->hash_type = hash_type;
	hints->vlan_proto = bpf_ntohs(vlan_proto);
	hints->vlan_tci = vlan_tci;
	hints->told = told;
	hints->rx_cpu = bpf_get_smp_processor_id();
	hints->rx_queue = ctx->rx_queue_index;
	hints->mark = hints_wanted.mark;
	hints->btf_id = nic_hints_wanted.btf_id;
}

/* With CAP_PERFMON and without, as in xsk.bpf.c. */
SEC("xdp")
int ringside_xsk_n(struct xdp_md *ctx)
{
	return steer(ctx, BY_POINTER);
}

SEC("xdp")
int ringside_xsk_nh(struct xdp_md *ctx)
{
	return steer(ctx, AT_FIXED_PLACES);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
