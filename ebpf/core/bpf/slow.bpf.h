/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Slow calls, as their clients see them: all, not samples. */
#ifndef BELLWIRE_SLOW_H
#define BELLWIRE_SLOW_H

/* A client waited for at least as long as the probe says; bellwire-trace wants those of another length. */
SEC("usdt")
int on_slow(struct pt_regs *ctx)
{
	struct session_record record;
	long args[5] = {};
	for (int at = 0; at < 5; at++)
		bpf_usdt_arg(ctx, at, &args[at]);
	if ((__u64)args[3] - (__u64)args[2] < all_slower_than)
		return 0;
	if (bpf_probe_read_user(&record, sizeof(record), (void *)args[0])) {
		__sync_fetch_and_add(&losses.unread, 1);
		return 0;
	}
	struct task_struct *task = bpf_get_current_task_btf();
	__u32 pid = tracer_pid(task->group_leader);
	if (!matches_service(&record) || (only_pid && pid != only_pid && record.peer != only_pid))
		return 0;
	watch_thread(task->pid);
	note_taker(task->pid);
	struct slow_event *event = bpf_ringbuf_reserve(&slow_events, sizeof(*event), 0);
	if (!event) {
		__sync_fetch_and_add(&losses.dropped, 1);
		return 0;
	}
	__s64 offset = clock_offset(task);
	event->kind = SLOW_CALL;
	event->session.number = record.number;
	event->session.created = record.created;
	event->sequence = args[1];
	__builtin_memcpy(event->service, record.service, NAME);
	event->began = args[2] - offset;
	event->ended = args[3] - offset;
	event->length = args[4];
	event->peer = record.peer;
	event->cgroup = bpf_get_current_cgroup_id();
	event->pid = pid;
	event->tid = tracer_pid(task);
	bpf_get_current_comm(event->comm, sizeof(event->comm));
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
	__sync_fetch_and_add(&losses.slow_calls, 1);
	return 0;
}

#endif
