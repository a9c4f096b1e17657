/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Watched threads: when they were woken, when they ran, and why they did not. */
#ifndef BELLWIRE_THREADS_H
#define BELLWIRE_THREADS_H

/* MAX_PID_NS_LEVEL of the kernel: the maximum nesting of pid namespaces. */
#define MAX_LEVEL 32
/* PROC_PID_INIT_INO of the kernel: the inode of the initial pid namespace. */
#define FIRST_PID_NAMESPACE 0xeffffffcU

/* Threads that are watched, in two arrays that are indexed by a hash of the tid; on a collision the later thread replaces
 * the earlier one, and that is counted. Plain arrays need no map lookup in the scheduler's hot path. The waking CPU and the
 * CPU of the woken thread write to different arrays, to avoid false sharing. Each entry repeats the tid: reading it from
 * another cache line, which is usually not cached, would double the cost. bellwire-trace enters the threads that run when it
 * attaches; the others are entered at their first sample. src/tracer.rs has the same hash. */
#define THREAD_BITS 13
#define THREADS (1 << THREAD_BITS)

struct {
	__u32 tid;
	__u32 waker;
	__u64 time;
	char comm[COMM];
} __attribute__((aligned(64))) wakeups[THREADS];

/* Why a thread is off the CPU. */
enum off_state { ON, RUNNABLE, SLEEPING, STOPPED };

struct {
	__u32 tid;
	__u32 state;
	__u64 left_cpu;
	/* How long it had run when it left. */
	__u64 ran;
	/* After a wakeup: a thread that was preempted does not follow one when it returns. */
	__u64 on_cpu;
	struct off_cpu off_cpu;
} __attribute__((aligned(64))) switches[THREADS];

/* What a watched thread left its CPU for, while slow calls are looked for. */
struct {
	/* The thread, if it has taken a sampled message or was slow: others of its process matter to no call. */
	__u32 taker;
	__u32 next;
	char next_comm[COMM];
	__s64 user_stack;
	/* The state that it left in. */
	__u32 task_state;
	/* The kernel's stack as it was last unwound, and in which system call if that says where it sleeps; else 0. */
	__u32 call;
	__u64 kernel_stack[KERNEL_FRAMES];
} leaves[THREADS];

struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, 16384);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, 127 * sizeof(__u64));
} stacks SEC(".maps");

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

/* Watches the current thread from now on. Returns whether it was watched already. */
static __always_inline bool watch_thread(__u32 tid)
{
	__u32 slot = thread_slot(tid);
	if (wakeups[slot].tid == tid && switches[slot].tid == tid)
		return true;
	if (wakeups[slot].tid)
		__sync_fetch_and_add(&losses.displaced, 1);
	wakeups[slot].time = 0;
	wakeups[slot].tid = tid;
	switches[slot].left_cpu = 0;
	switches[slot].on_cpu = 0;
	switches[slot].state = ON;
	switches[slot].off_cpu.runnable = 0;
	switches[slot].off_cpu.sleeping = 0;
	switches[slot].off_cpu.stopped = 0;
	switches[slot].tid = tid;
	return false;
}

/* Returns whether the current thread has returned to a CPU without a switch that was seen. */
static __always_inline bool lacks_return(__u32 tid)
{
	__u32 slot = thread_slot(tid);
	return switches[slot].tid == tid && switches[slot].left_cpu && switches[slot].state != ON;
}

/* The current thread takes messages. */
static __always_inline void note_taker(__u32 tid)
{
	if (all_slower_than != ~0ULL)
		leaves[thread_slot(tid)].taker = tid;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(on_waking, struct task_struct *task)
{
	__u32 slot = thread_slot(task->pid);
	if (wakeups[slot].tid != task->pid)
		return 0;
	wakeups[slot].time = bpf_ktime_get_ns();
	if (min_duration != ~0ULL || all_slower_than != ~0ULL) {
		wakeups[slot].waker = tracer_pid(bpf_get_current_task_btf());
		bpf_get_current_comm(wakeups[slot].comm, COMM);
	}
	return 0;
}

#define TASK_INTERRUPTIBLE 1
#define TASK_SLEEPS 3
#define TASK_STOPPED_OR_TRACED 0xc

/* Returns the system call in which a thread sleeps, if there is but one place in it to do so interruptibly. */
static __always_inline __u32 waiting_call(struct task_struct *task, __u32 slot)
{
	if (switches[slot].state != SLEEPING || (leaves[slot].task_state & TASK_SLEEPS) != TASK_INTERRUPTIBLE)
		return 0;
	__u32 call = BPF_CORE_READ((struct pt_regs *)bpf_task_pt_regs(task), SYSTEM_CALL);
	for (int at = 0; at < sizeof(waiting_calls) / sizeof(*waiting_calls); at++) {
		if (call == waiting_calls[at])
			return call;
	}
	return 0;
}

/* Notes where in the kernel a thread left its CPU. It does not run yet, so its stack is as it was then. Unwinding costs it
 * microseconds just before it runs, so that is left out if the result is known: a server waits in the same way for each
 * request. */
static __always_inline void unwind_kernel(struct task_struct *task, __u32 slot)
{
	__u32 call = waiting_call(task, slot);
	if (call && leaves[slot].call == call)
		return;
	bpf_get_task_stack(task, leaves[slot].kernel_stack, sizeof(leaves[slot].kernel_stack), 0);
	leaves[slot].call = call;
}

/* Reports that a watched thread was off its CPU. */
static __always_inline void report_off_cpu(struct task_struct *task, __u32 slot, __u64 runnable, __u64 now, bool unwinds)
{
	struct off_event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event) {
		__sync_fetch_and_add(&losses.dropped, 1);
		return;
	}
	if (unwinds)
		unwind_kernel(task, slot);
	else
		/* The thread has left again, from somewhere else. */
		leaves[slot].kernel_stack[0] = leaves[slot].call = 0;
	event->kind = OFF_CPU;
	event->left = switches[slot].left_cpu;
	event->runnable = runnable;
	event->entered = now;
	event->cgroup = BPF_CORE_READ(task, cgroups, dfl_cgrp, kn, id);
	event->pid = tracer_pid(task->group_leader);
	event->tid = tracer_pid(task);
	event->state = switches[slot].state;
	event->waker = wakeups[slot].waker;
	event->next = leaves[slot].next;
	__builtin_memcpy(event->kernel_stack, leaves[slot].kernel_stack, sizeof(event->kernel_stack));
	event->user_stack = leaves[slot].user_stack;
	event->takes_messages = leaves[slot].taker == (__u32)task->pid;
	bpf_probe_read_kernel(event->comm, COMM, task->comm);
	__builtin_memcpy(event->waker_comm, wakeups[slot].comm, COMM);
	__builtin_memcpy(event->next_comm, leaves[slot].next_comm, COMM);
	bpf_ringbuf_submit(event, wake_consumer());
}

/* Adds up a time off the CPU that ends now. */
static __always_inline void note_return(struct task_struct *task, __u32 slot, __u64 now, bool unwinds)
{
	__u64 left = switches[slot].left_cpu, runnable = left;
	__u32 tid = task->pid, state = switches[slot].state;
	if (state != RUNNABLE)
		switches[slot].on_cpu = now;
	if (!left) {
		switches[slot].state = ON;
		return;
	}
	if (state != RUNNABLE && wakeups[slot].tid == tid && wakeups[slot].time > left &&
	    wakeups[slot].time <= now)
		runnable = wakeups[slot].time;
	if (state == SLEEPING)
		switches[slot].off_cpu.sleeping += runnable - left;
	else if (state == STOPPED)
		switches[slot].off_cpu.stopped += runnable - left;
	switches[slot].off_cpu.runnable += now - runnable;
	/* Shorter ones explain little of a slow call. */
	if (all_slower_than != ~0ULL && (now - left) * 4 >= all_slower_than)
		report_off_cpu(task, slot, runnable, now, unwinds);
	switches[slot].state = ON;
}

/* A watched thread leaves its CPU to `next`. */
static __always_inline void leave_cpu(void *ctx, struct task_struct *task, bool preempt, struct task_struct *next)
{
	__u32 tid = task->pid, slot = thread_slot(tid);
	if (!tid || switches[slot].tid != tid)
		return;
	__u64 now = bpf_ktime_get_ns();
	if (lacks_return(tid)) {
		/* Some switches to a thread do not reach this program. How long it ran is known. */
		__u64 entered = now - (task->se.sum_exec_runtime - switches[slot].ran);
		note_return(task, slot, entered, false);
		__sync_fetch_and_add(&losses.unseen_returns, 1);
	}
	__u32 state = task->__state;
	switches[slot].ran = task->se.sum_exec_runtime;
	switches[slot].state = preempt || !state ? RUNNABLE : state & TASK_STOPPED_OR_TRACED ? STOPPED : SLEEPING;
	switches[slot].left_cpu = now;
	if (all_slower_than != ~0ULL) {
		leaves[slot].user_stack = bpf_get_stackid(ctx, &stacks, BPF_F_USER_STACK);
		leaves[slot].task_state = state;
		leaves[slot].next = tracer_pid(next);
		bpf_probe_read_kernel(leaves[slot].next_comm, COMM, next->comm);
	}
}

/* A watched thread gets a CPU. */
static __always_inline void enter_cpu(struct task_struct *task)
{
	/* The idle task has pid 0. */
	__u32 tid = task->pid, slot = thread_slot(tid);
	if (tid && switches[slot].tid == tid)
		note_return(task, slot, bpf_ktime_get_ns(), true);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	leave_cpu(ctx, prev, preempt, next);
	enter_cpu(next);
	return 0;
}

#endif
