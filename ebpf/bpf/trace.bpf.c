/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Joins the samples of both ends of a session with events of the scheduler: docs/tracing.md. */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include <bpf/usdt.bpf.h>
#include "trace.h"
#include "stats.bpf.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* The maximum number of calls whose reply has not been sampled yet. */
#define CALLS 16384
#define SECOND 1000000000LL
/* MAX_PID_NS_LEVEL of the kernel: the maximum nesting of pid namespaces. */
#define MAX_LEVEL 32
/* PROC_PID_INIT_INO of the kernel: the inode of the initial pid namespace. */
#define FIRST_PID_NAMESPACE 0xeffffffcU

/* Set before the programs are loaded. */
const volatile __u32 only_pid = 0;
const volatile char only_service[NAME] = {};
/* Calls of at least this duration are reported as events; none if all bits are set. */
const volatile __u64 slow = ~0ULL;
/* The pid namespace of the tracer: pids are reported as seen there. */
const volatile __u32 pid_namespace = 0;

struct losses losses;

/* Threads that have taken samples, in two arrays that are indexed by a hash of the tid; on a collision the later thread
 * replaces the earlier one. Plain arrays need no map lookup in the scheduler's hot path. The waking CPU and the CPU of the
 * woken thread write to different arrays, to avoid false sharing. Each entry repeats the tid: reading it from another
 * cache line, which is usually not cached, would double the cost. */
#define THREAD_BITS 12
#define THREADS (1 << THREAD_BITS)

struct {
	__u32 tid;
	__u32 waker;
	__u64 time;
	char comm[COMM];
} __attribute__((aligned(64))) wakeups[THREADS];

struct {
	__u32 tid;
	/* It was preempted: the next switch to it does not follow a wakeup. */
	__u32 preempted;
	__u64 on_cpu;
} __attribute__((aligned(64))) switches[THREADS];

/* Requests that the server has received, until the client receives the reply. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, CALLS);
	__type(key, struct call_key);
	__type(value, struct direction);
} calls SEC(".maps");

/* The offset of the monotonic clock in the server's time namespace, by pid. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, __s64);
} clock_offsets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} events SEC(".maps");

/* The pid of a task in the tracer's pid namespace or, if it has none there, in the initial one. */
static __always_inline __u32 tracer_pid(struct task_struct *task)
{
	if (pid_namespace == FIRST_PID_NAMESPACE)
		return task->pid;
	struct pid *pid = task->thread_pid;
	__u32 level = BPF_CORE_READ(pid, level);
	for (__u32 at = 0; at <= MAX_LEVEL && at <= level; at++) {
		struct upid number;
		bpf_core_read(&number, sizeof(number), &pid->numbers[at]);
		if (BPF_CORE_READ(number.ns, ns.inum) == pid_namespace)
			return number.nr;
	}
	return task->pid;
}

static __always_inline __u32 thread_slot(__u32 tid)
{
	return tid * 2654435769U >> (32 - THREAD_BITS);
}

SEC("tp_btf/sched_waking")
int BPF_PROG(on_waking, struct task_struct *task)
{
	__u32 slot = thread_slot(task->pid);
	if (wakeups[slot].tid != task->pid)
		return 0;
	wakeups[slot].time = bpf_ktime_get_ns();
	if (slow != ~0ULL) {
		wakeups[slot].waker = tracer_pid(bpf_get_current_task_btf());
		bpf_get_current_comm(wakeups[slot].comm, COMM);
	}
	return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	if (preempt) {
		__u32 prev_tid = prev->pid, prev_slot = thread_slot(prev_tid);
		if (switches[prev_slot].tid == prev_tid)
			switches[prev_slot].preempted = 1;
	}
	__u32 next_tid = next->pid, slot = thread_slot(next_tid);
	/* The idle task has pid 0. */
	if (!next_tid || switches[slot].tid != next_tid)
		return 0;
	if (switches[slot].preempted)
		switches[slot].preempted = 0;
	else
		switches[slot].on_cpu = bpf_ktime_get_ns();
	return 0;
}

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
	direction->pid = tracer_pid(task->group_leader);
	direction->tid = tracer_pid(task);
	bpf_get_current_comm(direction->comm, sizeof(direction->comm));
	__u32 slot = thread_slot(task->pid);
	if (wakeups[slot].tid == task->pid && switches[slot].tid == task->pid) {
		direction->waking = wakeups[slot].time;
		direction->on_cpu = switches[slot].on_cpu;
		direction->waker = wakeups[slot].waker;
		__builtin_memcpy(direction->waker_comm, wakeups[slot].comm, COMM);
	} else {
		wakeups[slot].time = 0;
		wakeups[slot].tid = task->pid;
		switches[slot].preempted = 0;
		switches[slot].tid = task->pid;
	}
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

SEC("usdt")
int on_message(struct pt_regs *ctx)
{
	struct session_record record;
	struct call_key key = {};
	struct direction direction = {};
	__s64 offset = clock_offset(bpf_get_current_task_btf());
	if (read_sample(ctx, &record, &key, &direction, offset))
		return 0;
	if (offset)
		bpf_map_update_elem(&clock_offsets, &direction.pid, &offset, BPF_ANY);
	bpf_map_update_elem(&calls, &key, &direction, BPF_ANY);
	return 0;
}

/* Either end closes the session: its counts stay until another session needs the entry. */
SEC("usdt")
int on_closed(struct pt_regs *ctx)
{
	struct session_record record;
	struct stats_key key = {};
	long session = 0;
	bpf_usdt_arg(ctx, 0, &session);
	if (bpf_probe_read_user(&record, sizeof(record), (void *)session))
		return 0;
	fill_stats_key(&key, &record);
	__u32 *known = bpf_map_lookup_elem(&sessions, &key);
	if (!known)
		return 0;
	__u32 slot = *known;
	/* Both ends get here: only one of them deletes the key. */
	if (slot && !bpf_map_delete_elem(&sessions, &key))
		bpf_map_push_elem(&closed_slots, &slot, 0);
	return 0;
}

static __always_inline void count_direction(__u32 slot, const struct direction *direction,
					    const __u32 stages[4])
{
	count(slot, stages[0], direction->published - direction->sent);
	if (direction->waking) {
		count(slot, stages[1], direction->waking - direction->published);
		count(slot, stages[2], direction->on_cpu - direction->waking);
		count(slot, stages[3], direction->received - direction->on_cpu);
	} else {
		count(slot, stages[1], direction->received - direction->published);
	}
}

static __always_inline void report_call(const struct call_key *key,
					const struct session_record *record,
					const struct direction *request,
					const struct direction *reply)
{
	struct call_event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event) {
		__sync_fetch_and_add(&losses.dropped, 1);
		return;
	}
	event->kind = CALL_EVENT;
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
	static const __u32 request_stages[] = { SEND, PUBLISH, WAKE, ON_CPU };
	static const __u32 reply_stages[] = { REPLY_SEND, REPLY_PUBLISH, REPLY_WAKE, REPLY_ON_CPU };
	struct session_record record;
	struct call_key key = {};
	struct direction reply = {};
	__s64 offset = clock_offset(bpf_get_current_task_btf());
	if (read_sample(ctx, &record, &key, &reply, offset))
		return 0;
	struct direction *stored = bpf_map_lookup_elem(&calls, &key);
	if (!stored) {
		__sync_fetch_and_add(&losses.unmatched, 1);
		return 0;
	}
	struct direction request = *stored;
	bpf_map_delete_elem(&calls, &key);
	/* Only here are the pids of both ends known in the tracer's namespace: `peer` is a pid in the other end's namespace. */
	if (only_pid && request.pid != only_pid && reply.pid != only_pid)
		return 0;
	__s64 *server_offset = bpf_map_lookup_elem(&clock_offsets, &request.pid);
	bool ordered = normalize_times(&request, offset);
	ordered &= normalize_times(&reply, server_offset ? *server_offset : 0);
	if (!ordered || reply.sent < request.received) {
		__sync_fetch_and_add(&losses.disordered, 1);
		return 0;
	}
	__u32 slot = session_slot(&record, request.pid, reply.pid);
	count_direction(slot, &request, request_stages);
	count_direction(slot, &reply, reply_stages);
	count(slot, RECEIVE, reply.sent - request.received);
	count(slot, REPLY, reply.received - reply.sent);
	__u64 call = reply.received - request.sent;
	count(slot, CALL, call);
	if (call >= slow)
		report_call(&key, &record, &request, &reply);
	return 0;
}

/* An event of a session; the cookie is its kind. */
SEC("usdt")
int on_event(struct pt_regs *ctx)
{
	struct session_record record;
	long session = 0, args[3] = {};
	bpf_usdt_arg(ctx, 0, &session);
	bpf_usdt_arg(ctx, 1, &args[0]);
	bpf_usdt_arg(ctx, 2, &args[1]);
	bpf_usdt_arg(ctx, 3, &args[2]);
	if (bpf_probe_read_user(&record, sizeof(record), (void *)session)) {
		__sync_fetch_and_add(&losses.unread, 1);
		return 0;
	}
	struct task_struct *task = bpf_get_current_task_btf();
	__u32 pid = tracer_pid(task->group_leader);
	if (!matches_service(&record) || (only_pid && pid != only_pid && record.peer != only_pid))
		return 0;
	struct session_event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event) {
		__sync_fetch_and_add(&losses.dropped, 1);
		return 0;
	}
	event->kind = bpf_usdt_cookie(ctx);
	event->at = bpf_ktime_get_ns();
	event->session.number = record.number;
	event->session.created = record.created;
	__builtin_memcpy(event->service, record.service, NAME);
	event->role = record.role;
	__builtin_memcpy(event->args, args, sizeof(event->args));
	event->pid = pid;
	event->tid = tracer_pid(task);
	bpf_get_current_comm(event->comm, sizeof(event->comm));
	bpf_ringbuf_submit(event, 0);
	return 0;
}

/* Empty: attaching to the probe is what selects the sampling rate. */
SEC("usdt")
int on_rate(struct pt_regs *ctx)
{
	return 0;
}
