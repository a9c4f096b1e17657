/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Joins the samples of both ends of a session with the scheduler's events: docs/tracing.md. */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include <bpf/usdt.bpf.h>
#include "trace.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* Calls whose answer is awaited. */
#define CALLS 16384
#define SECOND 1000000000LL

/* Set before the programs are loaded. */
const volatile __u32 only_pid = 0;
const volatile char only_service[NAME] = {};
/* A call that took as long is told; all ones: none is. */
const volatile __u64 slow = ~0ULL;

/* Read by mapping them. */
struct session_stats stats[SESSIONS];
struct losses losses;
__u32 next_session = 1;

/* When a thread that has taken samples was last woken, and came to a CPU. */
struct thread {
	__u64 waking;
	__u64 on_cpu;
	__u32 waker;
	__u32 pad;
	char waker_comm[COMM];
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct thread);
} threads SEC(".maps");

/* Requests that were taken, until their answers are. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, CALLS);
	__type(key, struct call_key);
	__type(value, struct way);
} calls SEC(".maps");

/* Which entry of stats a session has. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, SESSIONS * 4);
	__type(key, struct session_key);
	__type(value, __u32);
} sessions SEC(".maps");

/* What the clock of the server's time namespace is ahead, by its process. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, __s64);
} clocks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} events SEC(".maps");

SEC("tp_btf/sched_waking")
int BPF_PROG(on_waking, struct task_struct *task)
{
	struct thread *thread = bpf_task_storage_get(&threads, task, 0, 0);
	if (!thread)
		return 0;
	thread->waking = bpf_ktime_get_ns();
	thread->waker = bpf_get_current_pid_tgid();
	bpf_get_current_comm(thread->waker_comm, sizeof(thread->waker_comm));
	return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	struct thread *thread = bpf_task_storage_get(&threads, next, 0, 0);
	/* The first time after it was woken: a thread that is preempted comes back later. */
	if (thread && thread->on_cpu < thread->waking)
		thread->on_cpu = bpf_ktime_get_ns();
	return 0;
}

/* What the clock of this task's time namespace is ahead of the host's. */
static __always_inline __s64 clock_offset(void)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct timespec64 ahead = {};
	struct time_namespace *time_ns = BPF_CORE_READ(task, nsproxy, time_ns);
	if (time_ns)
		bpf_core_read(&ahead, sizeof(ahead), &time_ns->offsets.monotonic);
	return ahead.tv_sec * SECOND + ahead.tv_nsec;
}

static __always_inline bool is_wanted(const struct session_record *record, __u32 pid)
{
	if (only_pid && pid != only_pid && record->peer != only_pid)
		return false;
	if (!only_service[0])
		return true;
	for (int at = 0; at < NAME; at++) {
		if (record->service[at] != only_service[at])
			return false;
		if (!only_service[at])
			break;
	}
	return true;
}

/* One end's part of a sample. The peer's two times stay as the peer told them. */
static __always_inline int read_sample(struct pt_regs *ctx, struct session_record *record,
				       struct call_key *key, struct way *way)
{
	long session = 0, sequence = 0, sent = 0, published = 0, received = 0, length = 0;
	bpf_usdt_arg(ctx, 0, &session);
	bpf_usdt_arg(ctx, 1, &sequence);
	bpf_usdt_arg(ctx, 2, &sent);
	bpf_usdt_arg(ctx, 3, &published);
	bpf_usdt_arg(ctx, 4, &received);
	bpf_usdt_arg(ctx, 5, &length);
	if (bpf_probe_read_user(record, sizeof(*record), (void *)session)) {
		__sync_fetch_and_add(&losses.unread, 1);
		return -1;
	}
	__u64 id = bpf_get_current_pid_tgid();
	if (!is_wanted(record, id >> 32))
		return -1;
	key->session.number = record->number;
	key->session.created = record->created;
	key->sequence = sequence;
	way->sent = sent;
	way->published = published;
	way->received = received - clock_offset();
	way->length = length;
	way->pid = id >> 32;
	way->tid = id;
	bpf_get_current_comm(way->comm, sizeof(way->comm));
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread *thread =
		bpf_task_storage_get(&threads, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (thread) {
		way->waking = thread->waking;
		way->on_cpu = thread->on_cpu;
		way->waker = thread->waker;
		__builtin_memcpy(way->waker_comm, thread->waker_comm, sizeof(way->waker_comm));
	}
	return 0;
}

/* A thread that was woken for something else was awake for this. */
static __always_inline bool settle(struct way *way, __s64 ahead)
{
	way->sent -= ahead;
	way->published -= ahead;
	if (way->waking < way->published || way->on_cpu < way->waking || way->received < way->on_cpu) {
		way->waking = 0;
		way->on_cpu = 0;
		way->waker = 0;
		way->waker_comm[0] = 0;
	}
	return way->sent <= way->published && way->published <= way->received;
}

SEC("usdt")
int on_message(struct pt_regs *ctx)
{
	struct session_record record;
	struct call_key key = {};
	struct way way = {};
	if (read_sample(ctx, &record, &key, &way))
		return 0;
	__s64 ahead = clock_offset();
	if (ahead)
		bpf_map_update_elem(&clocks, &way.pid, &ahead, BPF_ANY);
	bpf_map_update_elem(&calls, &key, &way, BPF_ANY);
	return 0;
}

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

/* In a function of its own, which is verified once. */
__attribute__((noinline)) int count(__u32 slot, __u32 stage, __u64 nanos)
{
	if (slot >= SESSIONS || stage >= STAGES)
		return 0;
	struct histogram *histogram = &stats[slot].stages[stage];
	__u32 at = bucket(nanos);
	if (at >= BUCKETS)
		return 0;
	__sync_fetch_and_add(&histogram->count, 1);
	__sync_fetch_and_add(&histogram->sum, nanos);
	__sync_fetch_and_add(&histogram->buckets[at], 1);
	/* Two at once may lose the smaller of two new largest values. */
	if (nanos > histogram->max)
		histogram->max = nanos;
	return 0;
}

static __always_inline __u32 slot_of(const struct call_key *key, const struct session_record *record,
				     __u32 server, __u32 client)
{
	__u32 *known = bpf_map_lookup_elem(&sessions, &key->session);
	if (known)
		return *known;
	__u32 slot = __sync_fetch_and_add(&next_session, 1);
	if (slot >= SESSIONS)
		slot = 0;
	if (bpf_map_update_elem(&sessions, &key->session, &slot, BPF_NOEXIST)) {
		known = bpf_map_lookup_elem(&sessions, &key->session);
		return known ? *known : 0;
	}
	if (slot && slot < SESSIONS) {
		struct session_stats *session = &stats[slot];
		__builtin_memcpy(session->service, record->service, NAME);
		session->key = key->session;
		session->server = server;
		session->client = client;
	}
	return slot;
}

static __always_inline void count_way(__u32 slot, const struct way *way, const __u32 stages[4])
{
	count(slot, stages[0], way->published - way->sent);
	if (way->waking) {
		count(slot, stages[1], way->waking - way->published);
		count(slot, stages[2], way->on_cpu - way->waking);
		count(slot, stages[3], way->received - way->on_cpu);
	} else {
		count(slot, stages[1], way->received - way->published);
	}
}

static __always_inline void tell(const struct call_key *key, const struct session_record *record,
				 const struct way *request, const struct way *reply)
{
	struct call_event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event) {
		__sync_fetch_and_add(&losses.dropped, 1);
		return;
	}
	event->session = key->session;
	event->sequence = key->sequence;
	__builtin_memcpy(event->service, record->service, NAME);
	event->request = *request;
	event->reply = *reply;
	bpf_ringbuf_submit(event, 0);
}

SEC("usdt")
int on_reply(struct pt_regs *ctx)
{
	static const __u32 there[] = { SEND, PUBLISH, WAKE, ON_CPU };
	static const __u32 back[] = { REPLY_SEND, REPLY_PUBLISH, REPLY_WAKE, REPLY_ON_CPU };
	struct session_record record;
	struct call_key key = {};
	struct way reply = {};
	if (read_sample(ctx, &record, &key, &reply))
		return 0;
	struct way *taken = bpf_map_lookup_elem(&calls, &key);
	if (!taken) {
		__sync_fetch_and_add(&losses.unmatched, 1);
		return 0;
	}
	struct way request = *taken;
	bpf_map_delete_elem(&calls, &key);
	__s64 *server_ahead = bpf_map_lookup_elem(&clocks, &request.pid);
	bool ordered = settle(&request, clock_offset());
	ordered &= settle(&reply, server_ahead ? *server_ahead : 0);
	if (!ordered || reply.sent < request.received) {
		__sync_fetch_and_add(&losses.disordered, 1);
		return 0;
	}
	__u32 slot = slot_of(&key, &record, request.pid, reply.pid);
	count_way(slot, &request, there);
	count_way(slot, &reply, back);
	count(slot, RECEIVE, reply.sent - request.received);
	count(slot, REPLY, reply.received - reply.sent);
	__u64 call = reply.received - request.sent;
	count(slot, CALL, call);
	if (call >= slow)
		tell(&key, &record, &request, &reply);
	return 0;
}

/* The rate is chosen by being attached: nothing to do. */
SEC("usdt")
int on_rate(struct pt_regs *ctx)
{
	return 0;
}
