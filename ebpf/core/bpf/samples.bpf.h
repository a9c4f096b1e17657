/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* What the probes of all patterns have in common: a message between two threads, and for how many it stands. */
#ifndef BELLWIRE_SAMPLES_H
#define BELLWIRE_SAMPLES_H

/* More calls than one sample stands for: the library skips fewer. */
#define MAX_WEIGHT (1 << 22)
/* The maximum number of sessions whose samples have weights. */
#define MAX_SESSIONS 16384
/* For how long a slow call is the example of its service: about as long as between two scrapes. */
#define EXEMPLAR_AGE (60 * SECOND)

/* How many messages of a session its samples stand for: their numbers are consecutive. */
struct progress_key {
	struct session_key session;
	__u64 pattern;
};

struct progress {
	__u64 first;
	__u64 last;
	__u64 counted;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_SESSIONS);
	__type(key, struct progress_key);
	__type(value, struct progress);
} progresses SEC(".maps");

/* The offset of the monotonic clock in this task's time namespace. 0 for an exiting task, which has no namespaces. */
static __always_inline __s64 clock_offset(struct task_struct *task)
{
	struct time_namespace *time_ns = task->nsproxy->time_ns;
	return time_ns->offsets.monotonic.tv_sec * SECOND + time_ns->offsets.monotonic.tv_nsec;
}

static __always_inline bool matches_service(const struct session_record *record)
{
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

/* The arguments of the probes `message` and `reply`. */
enum { SESSION, SEQUENCE, SENT, PUBLISHED, RECEIVED, LENGTH, SAMPLE_ARGS };

/* Reads all arguments at once: bpf_usdt_arg() would look up the spec and read the registers again for each argument. */
static __always_inline int sample_args(struct pt_regs *ctx, __u64 args[SAMPLE_ARGS])
{
	int id = __bpf_usdt_spec_id(ctx);
	struct __bpf_usdt_spec *spec = bpf_map_lookup_elem(&__bpf_usdt_specs, &id);
	__u64 registers[REGISTERS];
	if (!spec || bpf_probe_read_kernel(registers, sizeof(registers), ctx))
		return -1;
	for (int arg = 0; arg < SAMPLE_ARGS; arg++) {
		__u64 at = spec->args[arg].reg_off / sizeof(__u64);
		/* All arguments of the library's probes are in registers: docs/tracing.md. */
		if (spec->args[arg].arg_type != BPF_USDT_ARG_REG || at >= REGISTERS)
			return -1;
		args[arg] = registers[at];
	}
	return 0;
}

/* What the scheduler knows of how the current thread came to a message. */
static __always_inline void read_wakeup(struct direction *direction, struct task_struct *task)
{
	direction->pid = tracer_pid(task->group_leader);
	direction->tid = tracer_pid(task);
	bpf_get_current_comm(direction->comm, sizeof(direction->comm));
	__u32 slot = thread_slot(task->pid);
	note_taker(task->pid);
	if (watch_thread(task->pid)) {
		direction->waking = wakeups[slot].time;
		direction->on_cpu = switches[slot].on_cpu;
		direction->waker = wakeups[slot].waker;
		__builtin_memcpy(direction->waker_comm, wakeups[slot].comm, COMM);
	} else {
		__sync_fetch_and_add(&losses.unwatched, 1);
	}
}

/* Reads one end's half of a sample. The two times from the peer are not yet corrected for its time namespace. */
static __always_inline int read_sample(struct pt_regs *ctx, struct session_record *record,
				       struct call_key *key, struct direction *direction, __s64 offset)
{
	__u64 args[SAMPLE_ARGS];
	if (sample_args(ctx, args) || bpf_probe_read_user(record, sizeof(*record), (void *)args[SESSION])) {
		__sync_fetch_and_add(&losses.unread, 1);
		return -1;
	}
	if (!matches_service(record))
		return -1;
	struct task_struct *task = bpf_get_current_task_btf();
	key->session.number = record->number;
	key->session.created = record->created;
	key->sequence = args[SEQUENCE];
	direction->sent = args[SENT];
	direction->published = args[PUBLISHED];
	direction->received = args[RECEIVED] - offset;
	direction->length = args[LENGTH];
	read_wakeup(direction, task);
	return 0;
}

/* Corrects the peer's times, and drops a wakeup that this message did not cause: the thread was awake when it arrived.
 * Returns whether the times are in order. */
static __always_inline bool normalize_times(struct direction *direction, __s64 offset)
{
	direction->sent -= offset;
	direction->published -= offset;
	if (direction->waking < direction->published || direction->on_cpu < direction->waking ||
	    direction->received < direction->on_cpu) {
		direction->waking = 0;
		direction->on_cpu = 0;
		direction->waker = 0;
		direction->waker_comm[0] = 0;
	}
	return direction->sent <= direction->published && direction->published <= direction->received;
}

static const __u32 request_stages[] = { SEND, PUBLISH, WAKE, ON_CPU };
static const __u32 reply_stages[] = { REPLY_SEND, REPLY_PUBLISH, REPLY_WAKE, REPLY_ON_CPU };

static __always_inline void count_direction(__u32 slot, const struct direction *direction, const __u32 stages[4],
					    __u64 weight)
{
	count(slot, stages[0], direction->published - direction->sent, weight);
	if (direction->waking) {
		count(slot, stages[1], direction->waking - direction->published, weight);
		count(slot, stages[2], direction->on_cpu - direction->waking, weight);
		count(slot, stages[3], direction->received - direction->on_cpu, weight);
	} else {
		count(slot, stages[1], direction->received - direction->published, weight);
	}
}

/* How many calls this sample stands for: those since the last one. Answers may come in another order than their requests:
 * in the long run, the weights of a session's samples add up to the calls from the first to the last. */
static __always_inline __u64 sample_weight(const struct call_key *call, __u32 pattern)
{
	__u64 sequence = call->sequence;
	struct progress_key key = { .session = call->session, .pattern = pattern };
	struct progress *known = bpf_map_lookup_elem(&progresses, &key);
	if (!known) {
		struct progress fresh = { .first = sequence, .last = sequence, .counted = 1 };
		bpf_map_update_elem(&progresses, &key, &fresh, BPF_ANY);
		return 1;
	}
	if (sequence > known->last)
		known->last = sequence;
	if (sequence < known->first)
		known->first = sequence;
	__u64 passed = known->last - known->first + 1, weight = 1;
	if (passed > known->counted && passed - known->counted < MAX_WEIGHT)
		weight = passed - known->counted;
	known->counted += weight;
	return weight;
}

/* A race between two may keep the parts of both: an example of either. */
static __always_inline void note_slowest(struct session_stats *session, __u64 nanos, const struct call_key *key, __u64 now)
{
	struct exemplar *slowest = &session->slowest;
	if (nanos < slowest->nanos && now - slowest->at < EXEMPLAR_AGE)
		return;
	slowest->nanos = nanos;
	slowest->sequence = key->sequence;
	slowest->session = key->session.number;
	slowest->at = now;
}

/* Counts all stages together, last. */
static __always_inline void count_whole(__u32 slot, __u64 nanos, const struct call_key *key, __u64 now, __u64 weight)
{
	count(slot, CALL, nanos, weight);
	struct session_stats *session = bpf_map_lookup_elem(&stats, &slot);
	if (!session)
		return;
	__sync_fetch_and_add(&session->samples, 1);
	note_slowest(session, nanos, key, now);
}

#endif
