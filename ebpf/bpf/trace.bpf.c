/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Joins the samples of both ends of a session with the scheduler's events: docs/tracing.md. */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include <bpf/usdt.bpf.h>
#include "trace.h"
#include "stats.bpf.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* Calls whose answer is awaited. */
#define CALLS 16384
#define SECOND 1000000000LL
/* Namespaces of process ids are not nested deeper: MAX_PID_NS_LEVEL of the kernel. */
#define MAX_LEVEL 32
/* PROC_PID_INIT_INO: the inode of the host's namespace. */
#define FIRST_PID_NAMESPACE 0xeffffffcU

/* Set before the programs are loaded. */
const volatile __u32 only_pid = 0;
const volatile char only_service[NAME] = {};
/* A call that took as long is told; all ones: none is. */
const volatile __u64 slow = ~0ULL;
/* The pid namespace of the tracer, in which it names processes. */
const volatile __u32 pid_namespace = 0;

struct losses losses;

/* Threads that have taken samples, by a hash of their number: one that meets another's place takes it. No helper is called
 * to find one, since the scheduler waits meanwhile; and what the waking processor writes stands apart from what the
 * woken one does, so that neither waits for the other's cache line. Each line has the number, too: a second one, which
 * is in no cache as a rule, costs as much as all the rest. */
#define THREAD_BITS 12
#define THREADS (1 << THREAD_BITS)

struct {
	__u32 tid;
	__u32 by;
	__u64 at;
	char comm[COMM];
} __attribute__((aligned(64))) wakings[THREADS];

struct {
	__u32 tid;
	/* It did not leave its processor by itself: when it comes back, it was not woken. */
	__u32 preempted;
	__u64 on_cpu;
} __attribute__((aligned(64))) switches[THREADS];

/* Requests that were taken, until their answers are. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, CALLS);
	__type(key, struct call_key);
	__type(value, struct way);
} calls SEC(".maps");

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

/* What the tracer calls a thread: its number in the tracer's namespace, or else in the host's. */
static __always_inline __u32 own_pid(struct task_struct *task)
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
	if (wakings[slot].tid != task->pid)
		return 0;
	wakings[slot].at = bpf_ktime_get_ns();
	if (slow != ~0ULL) {
		wakings[slot].by = own_pid(bpf_get_current_task_btf());
		bpf_get_current_comm(wakings[slot].comm, COMM);
	}
	return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	if (preempt) {
		__u32 left = prev->pid, place = thread_slot(left);
		if (switches[place].tid == left)
			switches[place].preempted = 1;
	}
	__u32 came = next->pid, slot = thread_slot(came);
	/* The idle one has no number. */
	if (!came || switches[slot].tid != came)
		return 0;
	if (switches[slot].preempted)
		switches[slot].preempted = 0;
	else
		switches[slot].on_cpu = bpf_ktime_get_ns();
	return 0;
}

/* What the clock of this task's time namespace is ahead of the host's. A task that ends has none: zeroes are read then. */
static __always_inline __s64 clock_offset(struct task_struct *task)
{
	struct time_namespace *time_ns = task->nsproxy->time_ns;
	return time_ns->offsets.monotonic.tv_sec * SECOND + time_ns->offsets.monotonic.tv_nsec;
}

static __always_inline bool is_wanted(const struct session_record *record)
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

/* Of `message` and `reply`. */
enum { SESSION, SEQUENCE, SENT, PUBLISHED, RECEIVED, LENGTH, SAMPLE_ARGS };

/* All arguments at once: bpf_usdt_arg() looks for the note and reads the registers for each of them anew. */
static __always_inline int sample_args(struct pt_regs *ctx, __u64 args[SAMPLE_ARGS])
{
	int id = __bpf_usdt_spec_id(ctx);
	struct __bpf_usdt_spec *spec = bpf_map_lookup_elem(&__bpf_usdt_specs, &id);
	__u64 registers[REGISTERS];
	if (!spec || bpf_probe_read_kernel(registers, sizeof(registers), ctx))
		return -1;
	for (int arg = 0; arg < SAMPLE_ARGS; arg++) {
		__u64 at = spec->args[arg].reg_off / sizeof(__u64);
		/* The notes of the library have nothing else: docs/tracing.md. */
		if (spec->args[arg].arg_type != BPF_USDT_ARG_REG || at >= REGISTERS)
			return -1;
		args[arg] = registers[at];
	}
	return 0;
}

/* One end's part of a sample. The peer's two times stay as the peer told them. */
static __always_inline int read_sample(struct pt_regs *ctx, struct session_record *record,
				       struct call_key *key, struct way *way, __s64 ahead)
{
	__u64 args[SAMPLE_ARGS];
	if (sample_args(ctx, args) || bpf_probe_read_user(record, sizeof(*record), (void *)args[SESSION])) {
		__sync_fetch_and_add(&losses.unread, 1);
		return -1;
	}
	if (!is_wanted(record))
		return -1;
	struct task_struct *task = bpf_get_current_task_btf();
	key->session.number = record->number;
	key->session.created = record->created;
	key->sequence = args[SEQUENCE];
	way->sent = args[SENT];
	way->published = args[PUBLISHED];
	way->received = args[RECEIVED] - ahead;
	way->length = args[LENGTH];
	way->pid = own_pid(task->group_leader);
	way->tid = own_pid(task);
	bpf_get_current_comm(way->comm, sizeof(way->comm));
	__u32 slot = thread_slot(task->pid);
	if (wakings[slot].tid == task->pid && switches[slot].tid == task->pid) {
		way->waking = wakings[slot].at;
		way->on_cpu = switches[slot].on_cpu;
		way->waker = wakings[slot].by;
		__builtin_memcpy(way->waker_comm, wakings[slot].comm, COMM);
	} else {
		wakings[slot].at = 0;
		wakings[slot].tid = task->pid;
		switches[slot].preempted = 0;
		switches[slot].tid = task->pid;
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
	__s64 ahead = clock_offset(bpf_get_current_task_btf());
	if (read_sample(ctx, &record, &key, &way, ahead))
		return 0;
	if (ahead)
		bpf_map_update_elem(&clocks, &way.pid, &ahead, BPF_ANY);
	bpf_map_update_elem(&calls, &key, &way, BPF_ANY);
	return 0;
}

/* Either end leaves: what was counted stays until its place is needed. */
SEC("usdt")
int on_closed(struct pt_regs *ctx)
{
	struct session_record record;
	struct stats_key key = {};
	long session = 0;
	bpf_usdt_arg(ctx, 0, &session);
	if (bpf_probe_read_user(&record, sizeof(record), (void *)session))
		return 0;
	name_stats(&key, &record);
	__u32 *known = bpf_map_lookup_elem(&sessions, &key);
	if (!known)
		return 0;
	__u32 slot = *known;
	/* Of two ends one succeeds. */
	if (slot && !bpf_map_delete_elem(&sessions, &key))
		bpf_map_push_elem(&freed, &slot, 0);
	return 0;
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
	event->kind = A_CALL;
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
	__s64 ahead = clock_offset(bpf_get_current_task_btf());
	if (read_sample(ctx, &record, &key, &reply, ahead))
		return 0;
	struct way *taken = bpf_map_lookup_elem(&calls, &key);
	if (!taken) {
		__sync_fetch_and_add(&losses.unmatched, 1);
		return 0;
	}
	struct way request = *taken;
	bpf_map_delete_elem(&calls, &key);
	/* Only here are both ends known as the tracer calls them: `peer` is what the other process calls it. */
	if (only_pid && request.pid != only_pid && reply.pid != only_pid)
		return 0;
	__s64 *server_ahead = bpf_map_lookup_elem(&clocks, &request.pid);
	bool ordered = settle(&request, ahead);
	ordered &= settle(&reply, server_ahead ? *server_ahead : 0);
	if (!ordered || reply.sent < request.received) {
		__sync_fetch_and_add(&losses.disordered, 1);
		return 0;
	}
	__u32 slot = slot_of(&record, request.pid, reply.pid);
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

/* What happens beside the calls, told apart by the cookie. */
SEC("usdt")
int on_note(struct pt_regs *ctx)
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
	__u32 pid = own_pid(task->group_leader);
	if (!is_wanted(&record) || (only_pid && pid != only_pid && record.peer != only_pid))
		return 0;
	struct note_event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
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
	event->tid = own_pid(task);
	bpf_get_current_comm(event->comm, sizeof(event->comm));
	bpf_ringbuf_submit(event, 0);
	return 0;
}

/* The rate is chosen by being attached: nothing to do. */
SEC("usdt")
int on_rate(struct pt_regs *ctx)
{
	return 0;
}
