/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What the gateway's program and its loader (src/gateway.rs) share: the maps.
 *
 * They may outlive both: pinned, they are taken over by the next daemon. Whoever
 * changes the size or meaning of anything here counts GATEWAY_LAYOUT up.
 */
#ifndef RINGSIDE_GATEWAY_H
#define RINGSIDE_GATEWAY_H

#include "parse.h"

#define GATEWAY_LAYOUT 16

#define MOST_PORTS 16
#define MOST_ADDRESSES 16
#define MOST_OPTIONS 16
/* Settings are written beside the ones in force: see `state`. */
#define CONFIG_SLOTS 8
/* Of `policies`: a power of two. */
#define POLICY_SLOTS 65536
#define SAMPLE_BYTES 256

/* Of `struct neighbor_key`. */
#define NETWORK_V4 (4u << 24)
#define NETWORK_V6 (6u << 24)

/*
 * What became of a packet, and the place of its counters. The first are the
 * reasons of dropped ones, with the numbers of ringside_gateway_core::DropReason.
 */
enum outcome {
	DROP_OUTER_FRAGMENT = 1,
	DROP_OUTER_MALFORMED = 2,
	DROP_VXLAN_FLAGS = 4,
	DROP_GENEVE_VERSION = 5,
	DROP_GENEVE_CONTROL = 6,
	DROP_GENEVE_MALFORMED = 7,
	DROP_GENEVE_CRITICAL = 8,
	DROP_GENEVE_PROTOCOL = 9,
	DROP_INNER_MALFORMED = 10,
	DROP_INNER_PROTOCOL = 11,
	DROP_INNER_MULTICAST = 12,
	DROP_ARP_NOT_ASKED = 13,
	DROP_DISCOVERY_MALFORMED = 14,
	DROP_DISCOVERY_NOT_ASKED = 15,
	DROP_OUT_OF_WINDOW = 28,
	DROP_TRANSMIT_FAILED = 35,
	DROP_NO_WORKER = 38,
	DROP_STALE = 42,
	/* By the kernel, after the verdict: counted by losses.bpf.c, and as sent on or answered, too. */
	DROP_TRANSMIT_LOST = 43,

	PASSED = 64,	 /* the kernel's */
	FORWARDED = 65,	 /* by the port that it came from */
	REDIRECTED = 66, /* forwarded by another port */
	ANSWERED = 67,

	/* Why a worker has to look at it. */
	SLOW_FIRST = 72,
	SLOW_MISS = 72,		 /* its destination is not in the cache */
	SLOW_SENDER = 73,	 /* its sender is not, and rules or checks ask for it; or it lives elsewhere */
	SLOW_POLICED = 74,	 /* rules are bound to an end, and it is not plain data of a known connection */
	SLOW_QUESTION = 75,	 /* ARP or discovery that is not answered in place */
	SLOW_ROUTE = 76,	 /* no port, or no address there, of the family */
	SLOW_ENCAPSULATION = 77, /* its host speaks another encapsulation or family */
	SLOW_TOO_LONG = 78,
	SLOW_TTL = 79,
	SLOW_CHECKSUM = 80, /* one that its sender's kernel left to a NIC */
	SLOW_HEADERS = 81,  /* headers that are not read here */
	SLOW_LAST = 81,

	SAMPLES_LOST = 90, /* of samples, not of packets */
	FOREIGN_PACKETS = 91, /* of those that were sent on or answered: to FOREIGN neighbours */
	OUTCOMES = 96,

	/* None yet. */
	TENANT = 0,
};

struct counter {
	__u64 packets;
	__u64 bytes;
	__u64 skip; /* of those that are sent on: so many more until one is shown */
};

/* A tenant's address: family (4, 6) in the upper 8 bits, VNI in the lower 24. IPv4 in the first word. */
struct neighbor_key {
	__u32 network;
	__be32 address[4];
};

enum neighbor_flags {
	POLICED = 1,   /* rules are bound to it */
	HOST_IS_V6 = 2,
	FOREIGN = 4, /* its network is another gateway's: counted, which the straight lane does not */
	GUARDED = 8, /* rules are bound to some address of its network: the sender counts, which the straight lane does not know */
	LIMITED = 16, /* its way takes less than its port does: `mtu`, which the straight lane does not look at */
};

enum encapsulation {
	AS_IT_CAME = 0,
	VXLAN = 1,
	GENEVE = 2,
};

/* Where it lives. Five words. */
struct neighbor {
	__be32 host[4];
	__u8 mac[ETH_ALEN];
	__u8 port;
	__u8 flags;
	__u8 host_mac[ETH_ALEN];
	__u8 encapsulation;
	__u8 used; /* set with each hit: the loader clears it, and evicts what stayed clear */
	__u16 mtu; /* of LIMITED ones: the longest IP packet that gets to its host */
	__u16 pad;
	__u32 until; /* the owner's: the program does not look at it */
} __attribute__((__aligned__(8)));

/*
 * The two ends of a connection, the lower one first: by address, then by port. Packets of both
 * directions have the same key. Whoever sends echo requests has their identifier for a port, and
 * the other end ECHO_PORT.
 */
struct connection_key {
	__u32 network;
	__be32 low[4];
	__be32 high[4];
	__be16 ports[2];
	__u8 protocol;
	__u8 pad[3];
};

#define ECHO_PORT 8

enum connection_flags {
	FROM_HIGH = 1, /* its higher end has sent the first packet */
	ONE_WAY = 2,   /* the other end has not answered: its packets go to a worker */
	NUMBERED = 4,  /* of TCP, and what its ends have said is known: `sides` */
	UNSETTLED = 8, /* a worker may still have segments of it that are not in `sides` */
};

/* What one end of a TCP connection has said: Side of crates/gateway-core/src/conntrack/tcp.rs. */
struct tcp_side {
	__u32 end;    /* one behind the last number that it has sent */
	__u32 limit;  /* the last number that the other end has offered to take, and one more */
	/* While UNSETTLED the same with segments that were ahead of `end` and `limit` of either side. */
	__u32 end_seen;
	union {
		__u32 limit_seen;
		/*
		 * Later: when the last segment of this end fit, in units of 2^30 ns. A packet that
		 * came before may still write `limit_seen`: what does not fit may then end the
		 * check.
		 */
		__u32 fitted;
	};
	__u16 window; /* the largest that it has offered, not shifted */
	__u8 scale;   /* the shift of its windows */
	/* As `end_seen`: the largest window, in units of 256 and rounded up to 255; 0: none. */
	__u8 window_seen;
};

/* Times are CLOCK_MONOTONIC in ns. */
struct connection {
	__u64 generation; /* in which it was allowed */
	__u64 seen;	  /* when it had its last packet, or was entered */
	__u64 name;	  /* the owner's */
	__u32 idle_ms;	  /* so much later it is over */
	__u32 flags;	  /* enum connection_flags */
	__u64 numbered; /* since which generation `sides` follows each segment */
	struct tcp_side sides[2]; /* of the lower and of the higher end */
};

/*
 * What the owner changes of a connection in place, as the packet that ringside_gateway_amend is run
 * on. Packets change an entry at the same time, so the owner must not read it and put it again.
 */
struct amendment {
	struct connection_key key;
	__u32 flags; /* enum amendment_flags */
	__u64 name;  /* of another connection: nothing is done */
	__u64 generation;
	__u64 seen;
	__u64 new_name;
	__u32 idle_ms;
	struct {
		__u32 from_end; /* as it was put */
		__u32 from_limit;
		__u32 end;
		__u32 limit;
		__u16 window;
		__u16 pad;
	} sides[2];
	__u32 pad;
};

enum amendment_flags {
	RENEW = 1,  /* `generation`, `seen`, `new_name` and `idle_ms` */
	MERGE = 2,  /* `sides`: what workers have followed since the connection was put */
	SETTLE = 4, /* after MERGE: UNSETTLED ends */
	FORGET = 8, /* NUMBERED ends */
};

struct port {
	__u8 mac[ETH_ALEN];
	__u16 mtu;
	__u32 ifindex; /* 0: there is none */
	__be32 v4;     /* 0: none */
	__be32 v6[4];  /* all 0: none */
};

struct known_option {
	__be16 class;
	__u8 type;
	__u8 pad;
};

/* Of `struct sampling`. */
#define ANY_DROP 255

/* Which packets are sampled. */
struct sampling {
	__u8 on;
	__u8 by_network;
	__u8 family; /* 4 or 6: only this address's; 0: any */
	__u8 drops;  /* the reason: only packets that are dropped for it; ANY_DROP: for any; 0: all packets */
	__u32 vni;
	__be32 address[4];
};

enum config_flags {
	SOURCE_CHECK = 2, /* only from where the sender lives */
	DERIVE_PORT = 4,  /* the outer source port follows from the tenant's flow */
	STALE = 8,	  /* what is known is too old: tenants' packets are dropped */
	CHECK_WINDOWS = 16, /* numbers of TCP are followed and checked */
};

#define NO_WITNESS 0xffffffff

struct config {
	__u64 generation; /* connections that were allowed in an earlier one are not known any more */
	__u32 flags;
	__be16 vxlan_port;
	__be16 geneve_port;
	__u32 v4_count;
	__u32 v6_count;
	__u32 option_count;
	__u32 ttl; /* of what is answered */
	__u32 one_in; /* of so many packets to receivers without rules who sends to whom is told; 0: none */
	/*
	 * For the straight lane. The place of `workers` whose socket says that the owner lives;
	 * NO_WITNESS, which is none, if packets may not go straight: there are flags but
	 * CHECK_WINDOWS, or sampling,
	 * or no address of IPv4, or not all are GUARDED yet that have to be.
	 */
	__u32 witness;
	__u32 vxlan_plain; /* vxlan_port in the upper half, less an IPv4 header: adding a packet's length gives port and length of UDP */
	__u32 namespace; /* in which the ports' indexes mean something: the inode of the network namespace */
	__be32 v4[MOST_ADDRESSES];
	__be32 v6[MOST_ADDRESSES][4];
	struct known_option options[MOST_OPTIONS];
	struct sampling sampling;
	struct port ports[MOST_PORTS];
};

/* Until when packets are sent on although there is no socket to send others to: CLOCK_MONOTONIC in ns. */
struct lease {
	__u64 until;
	__u64 longest; /* the owner's: the program does not look at it */
};

struct state {
	__u32 layout;
	__u32 active; /* which of the settings is in force */
	__u64 seed; /* of the table of neighbours */
	__u32 room; /* neighbours that it takes */
	__u32 pad;
};

struct sample {
	__u64 time; /* CLOCK_MONOTONIC in ns */
	__u32 ifindex;
	__u32 queue;
	__u32 outcome;
	__u32 vni; /* all bits set: not known */
	__u32 length;
	__u32 captured;
	__u8 bytes[SAMPLE_BYTES];
};

/* A packet that was sent on: who sends to whom, from which host. */
struct flow {
	__u32 network; /* of both addresses */
	__u32 outer_v6;
	__be32 host[4];
	__be32 source[4];
	__be32 destination[4];
};

/*
 * A plain hash, not an LRU one: a look-up then writes no memory that CPUs share, a
 * full map refuses instead of pushing out what somebody else needs, and what goes
 * is decided by who knows more, by `seen`. Filled before, so that no entry has to be
 * allocated later: an entry that is deleted and used again while a packet is being
 * looked at can pass that one packet, of a tenant's, for the other connection's.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1); /* set before loading */
	__type(key, struct connection_key);
	__type(value, struct connection);
} connections SEC(".maps");

struct policy {
	__u64 since; /* 0: no rules are bound to any address */
	__u64 followed_since; /* the numbers of connections are followed without a gap */
};

/*
 * By the lower bits of a VNI: since which generation its rules and what they are bound to
 * are as they are; 0: none are bound to any of its addresses. Networks whose numbers have
 * the same lower bits share one: a change in the one costs the other's connections a
 * look by a worker, and nothing else.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, POLICY_SLOTS);
	__type(key, __u32);
	__type(value, struct policy);
} policies SEC(".maps");

/*
 * The loader writes a slot that is not in force, then makes it so with one
 * aligned store. A packet that has begun under the old settings ends under them,
 * unless it is stopped for as long as seven more changes take.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, CONFIG_SLOTS);
	__type(key, __u32);
	__type(value, struct config);
} configs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct state);
} state SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lease);
} lease SEC(".maps");

/* By port, then queue. */
struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 1); /* set before loading */
	__type(key, __u32);
	__type(value, __u32);
} workers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, MOST_PORTS);
	__type(key, __u32);
	__type(value, __u32);
} ports SEC(".maps");

/* Per CPU, hence without atomics: softirq does not preempt softirq on a CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, OUTCOMES);
	__type(key, __u32);
	__type(value, struct counter);
} counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096); /* set before loading */
} samples SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 65536);
} flows SEC(".maps");

static __always_inline const struct config *current_config(void)
{
	static const __u32 key = 0;
	struct state *now = bpf_map_lookup_elem(&state, &key);

	if (!now)
		return 0;
	return bpf_map_lookup_elem(&configs, &now->active);
}

/* See `policies`. */
static __always_inline __u64 policy_since(__u32 vni)
{
	__u32 slot = vni & (POLICY_SLOTS - 1);
	struct policy *policy = bpf_map_lookup_elem(&policies, &slot);

	return policy ? policy->since : ~0ull;
}

static __always_inline void count(__u32 outcome, __u64 bytes)
{
	struct counter *counter = bpf_map_lookup_elem(&counters, &outcome);

	if (counter) {
		counter->packets++;
		counter->bytes += bytes;
	}
}

/*
 * True for one of so many packets as are sent on, by chance: of two flows that take
 * turns neither is always the one.
 */
static __always_inline int is_chosen(struct counter *counter, __u32 one_in)
{
	if (counter->skip) {
		counter->skip--;
		return 0;
	}
	/* From 0 to twice as many: one_in - 1 on average. one_in is a power of two. */
	counter->skip = bpf_get_prandom_u32() & (2 * one_in - 1);
	return 1;
}

#endif
