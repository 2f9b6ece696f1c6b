/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Where tenants' addresses live: a table that the owner writes by itself, through
 * memory that it shares with the program, and without a system call (src/gateway/table.rs).
 *
 * An entry has a line of the CPU's cache to itself, key, value and all, and one of
 * eight places: four that lie side by side by one half of its key's hash, four by the
 * other. Most are in the very first, so that a look-up waits for memory once. What
 * is in none of the eight is not there: a look-up ends, whatever keys tenants choose.
 *
 * An entry is read beside its owner's writing. Its version is odd while it is being
 * written, and another one afterwards: what was read meanwhile does not count, and is
 * a miss. A miss is a worker's, and never wrong.
 */
#ifndef RINGSIDE_GATEWAY_TABLE_H
#define RINGSIDE_GATEWAY_TABLE_H

#include "gateway.h"

/* Places side by side. */
#define GROUP 4
#define NOWHERE 0xffffffff

/* Of this table alone, so that nobody knows before which keys meet; and how many groups it has. */
const volatile __u64 table_seed = 0;
const volatile __u32 table_groups = 1;

/* A line of 64 bytes. */
struct neighbor_slot {
	__u32 version; /* odd: it is being written */
	struct neighbor_key key; /* network 0: it is free */
	struct neighbor value;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, GROUP); /* set before loading */
	__type(key, __u32);
	__type(value, struct neighbor_slot);
} neighbors SEC(".maps");

/* The address as two words, as they lie in memory. src/gateway/table.rs has the same. */
static __always_inline __u64 hash_of(__u32 network, __u64 first, __u64 second)
{
	const __u64 mix = 0x9e3779b97f4a7c15, more = 0xd6e8feb86659fd93;
	__u64 hash = (first ^ table_seed) * mix;

	hash ^= hash >> 32;
	hash = (hash ^ second ^ ((__u64)network << 32 | network)) * more;
	hash ^= hash >> 29;
	hash *= mix;
	return hash ^ hash >> 32;
}

/* So many of the first half's places, and then of the other's: 0 to 2 * GROUP - 1. */
static __always_inline __u32 place_of(__u64 hash, __u32 nth)
{
	__u64 half = nth < GROUP ? (__u32)hash : hash >> 32;

	return (half * table_groups >> 32) * GROUP + ((half ^ nth) & (GROUP - 1));
}

/*
 * Nothing, which a CPU has only when it has this: what is read from an address to
 * which it was added is read afterwards, on every CPU that Linux runs on. BPF has no
 * cheaper way to say so before Linux 6.15, and some CPUs read in another order.
 */
static __always_inline __u64 after(__u64 word)
{
	asm volatile("%0 &= 0" : "+r"(word));
	return word;
}

static __always_inline __u32 version_of(const struct neighbor_slot *slot, __u64 read)
{
	return *(const volatile __u32 *)((const void *)&slot->version + after(read));
}

/* Where an address is that is not in its first place: it may have gone when it is looked at. */
__noinline __u32 elsewhere(__u32 network, __u64 first, __u64 second)
{
	__u64 hash = hash_of(network, first, second);

	for (__u32 nth = 1; nth < 2 * GROUP; nth++) {
		__u32 place = place_of(hash, nth);
		struct neighbor_slot *slot = bpf_map_lookup_elem(&neighbors, &place);
		const volatile struct neighbor_key *key;

		if (!slot)
			continue;
		key = &slot->key;
		if (key->network == network &&
		    *(const volatile __u64 *)key->address == first &&
		    *(const volatile __u64 *)(key->address + 2) == second)
			return place;
	}
	return NOWHERE;
}

/*
 * What is in a place, if it is this address's: true. Read word by word, because bytes that
 * were put one by one would have to be waited for.
 */
static __always_inline int read_slot(struct neighbor_slot *slot, __u32 network, __u64 first,
				     __u64 second, __u64 value[5])
{
	const volatile __u64 *word;
	__u32 version = version_of(slot, 0);

	slot = (void *)slot + after(version);
	word = (const volatile __u64 *)&slot->key.address;
	if ((version & 1) || *(const volatile __u32 *)&slot->key.network != network ||
	    word[0] != first || word[1] != second)
		return 0;
#pragma unroll
	for (int i = 0; i < 5; i++)
		value[i] = word[2 + i];
	return version_of(slot, value[0] | value[1] | value[2] | value[3] | value[4]) == version;
}

/* Where an address lives: true. It is marked as used. Not known, or just being changed: false. */
__noinline int find_address(__u32 network, __u64 first, __u64 second, struct neighbor *found)
{
	__u32 place = place_of(hash_of(network, first, second), 0);
	struct neighbor_slot *slot = bpf_map_lookup_elem(&neighbors, &place);
	__u64 value[5];

	if (!slot || !found)
		return 0;
	if (!read_slot(slot, network, first, second, value)) {
		place = elsewhere(network, first, second);
		slot = bpf_map_lookup_elem(&neighbors, &place);
		if (!slot || !read_slot(slot, network, first, second, value))
			return 0;
	}
	__builtin_memcpy(found, value, sizeof(*found));
	if (!found->used)
		slot->value.used = 1;
	return 1;
}

static __always_inline int find_neighbor(const struct neighbor_key *key, struct neighbor *found)
{
	__u64 first, second;

	__builtin_memcpy(&first, key->address, sizeof(first));
	__builtin_memcpy(&second, key->address + 2, sizeof(second));
	return find_address(key->network, first, second, found);
}

#endif
