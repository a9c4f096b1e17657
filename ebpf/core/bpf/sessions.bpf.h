/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* What happens to sessions. */
#ifndef BELLWIRE_SESSIONS_H
#define BELLWIRE_SESSIONS_H

/* Either end closes the session: its counts stay until another session needs the entry. */
SEC("usdt")
int on_closed(struct pt_regs *ctx)
{
	struct session_record record;
	long session = 0;
	bpf_usdt_arg(ctx, 0, &session);
	if (bpf_probe_read_user(&record, sizeof(record), (void *)session))
		return 0;
	for (__u32 pattern = CALLS; pattern < PATTERNS; pattern++) {
		struct stats_key key = {};
		fill_stats_key(&key, &record, pattern);
		/* A whole service goes on. */
		__u32 *known = key.session.created ? bpf_map_lookup_elem(&sessions, &key) : NULL;
		if (!known)
			continue;
		__u32 slot = *known;
		/* Both ends get here: only one of them deletes the key. */
		if (slot && !bpf_map_delete_elem(&sessions, &key))
			bpf_map_push_elem(&closed_slots, &slot, 0);
	}
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
	bpf_ringbuf_submit(event, wake_consumer());
	return 0;
}

#endif
