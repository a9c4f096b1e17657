/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The histograms, in memory that bellwire-trace maps, and the map from sessions to histograms. */
#ifndef BELLWIRE_STATS_H
#define BELLWIRE_STATS_H

/* Set before the programs are loaded: count each session separately, not all sessions of a service together. */
const volatile bool by_session = false;

/* A map and not a global variable, whose initial zeroes would be copied to the kernel when the programs are loaded. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, SESSIONS);
	__type(key, __u32);
	__type(value, struct session_stats);
} stats SEC(".maps");

__u32 next_session = 1;

/* The entry in stats of a session or a service. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SESSIONS);
	__type(key, struct stats_key);
	__type(value, __u32);
} sessions SEC(".maps");

/* Entries in stats whose session was closed, least recently closed first. */
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, SESSIONS);
	__type(value, __u32);
} closed_slots SEC(".maps");

static __always_inline __u32 bucket(__u64 value)
{
	if (value < SUBS)
		return value;
	__u32 log = 0;
	__u64 rest = value;
	if (rest >> 32) { log += 32; rest >>= 32; }
	if (rest >> 16) { log += 16; rest >>= 16; }
	if (rest >> 8) { log += 8; rest >>= 8; }
	if (rest >> 4) { log += 4; rest >>= 4; }
	if (rest >> 2) { log += 2; rest >>= 2; }
	if (rest >> 1) { log += 1; }
	__u32 at = (log - SUB_BITS + 1) * SUBS + ((value >> (log - SUB_BITS)) & (SUBS - 1));
	return at < BUCKETS ? at : BUCKETS - 1;
}

/* Not inlined, so that it is verified only once. */
__attribute__((noinline)) int count(__u32 slot, __u32 stage, __u64 nanos, __u64 weight)
{
	struct session_stats *session = bpf_map_lookup_elem(&stats, &slot);
	__u32 at = bucket(nanos);
	if (!session || stage >= STAGE_COUNT || at >= BUCKETS)
		return 0;
	struct total *total = &session->totals[stage];
	__sync_fetch_and_add(&total->sum, nanos * weight);
	__sync_fetch_and_add(&session->buckets[stage].counts[at], weight);
	/* A race between two new maxima may lose the larger one. */
	if (nanos > total->max)
		total->max = nanos;
	return 0;
}

/* Not inlined, so that it is verified only once and not for each stage. */
__attribute__((noinline)) int clear_stage(__u32 slot, __u32 stage)
{
	struct session_stats *session = bpf_map_lookup_elem(&stats, &slot);
	if (!session || stage >= STAGE_COUNT)
		return 0;
	session->totals[stage].sum = 0;
	session->totals[stage].max = 0;
	/* Volatile, so that the compiler does not emit a call of memset(), which BPF lacks. */
	volatile __u64 *buckets = session->buckets[stage].counts;
	for (__u32 at = 0; at < BUCKETS; at++)
		buckets[at] = 0;
	return 0;
}

/* An unused entry or else that of the least recently closed session; 0 if there is none. */
static __always_inline __u32 alloc_slot(void)
{
	__u32 slot = 0;
	if (next_session < SESSIONS)
		slot = __sync_fetch_and_add(&next_session, 1);
	if (slot && slot < SESSIONS)
		return slot;
	if (bpf_map_pop_elem(&closed_slots, &slot) || slot >= SESSIONS)
		return 0;
	for (__u32 stage = 0; stage < STAGE_COUNT; stage++)
		clear_stage(slot, stage);
	struct session_stats *session = bpf_map_lookup_elem(&stats, &slot);
	if (session)
		session->samples = 0;
	return slot;
}

/* Snapshots and events are counted for each reader. */
static __always_inline void fill_stats_key(struct stats_key *key, const struct session_record *record, __u32 pattern)
{
	key->pattern = pattern;
	if (by_session || pattern == DELIVERIES) {
		key->session.number = record->number;
		key->session.created = record->created;
	}
	__builtin_memcpy(key->service, record->service, NAME);
}

static __always_inline __u32 session_slot(const struct session_record *record, __u32 pattern, __u32 server,
					  __u32 client)
{
	struct stats_key key = {};
	fill_stats_key(&key, record, pattern);
	__u32 *known = bpf_map_lookup_elem(&sessions, &key);
	if (known)
		return *known;
	__u32 slot = alloc_slot();
	if (!slot || slot >= SESSIONS)
		return 0;
	if (bpf_map_update_elem(&sessions, &key, &slot, BPF_NOEXIST)) {
		bpf_map_push_elem(&closed_slots, &slot, 0);
		known = bpf_map_lookup_elem(&sessions, &key);
		return known ? *known : 0;
	}
	struct session_stats *session = bpf_map_lookup_elem(&stats, &slot);
	if (!session)
		return 0;
	session->key = key;
	session->server = server;
	session->client = client;
	return slot;
}

#endif
