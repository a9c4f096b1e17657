/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Calls and one-way requests: both directions, and what the server does between. */
#ifndef BELLWIRE_CALLS_H
#define BELLWIRE_CALLS_H

/* The maximum number of calls whose reply has not been sampled yet. */
#define MAX_CALLS 16384

struct call_state {
	struct direction request;
	/* Of the thread that handles the call, when it began. */
	struct off_cpu before;
	/* `before` lacks a part. */
	__u64 lacks_return;
};

/* Requests that the server has received, until the client receives the reply. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_CALLS);
	__type(key, struct call_key);
	__type(value, struct call_state);
} calls SEC(".maps");

/* The same, until then, for those whose handler has begun in a worker or returned. Not in one map with the above: the
 * values of both do not fit on the stack. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_CALLS);
	__type(key, struct call_key);
	__type(value, struct work);
} works SEC(".maps");

/* The offset of the monotonic clock in the server's time namespace, by pid. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, __s64);
} clock_offsets SEC(".maps");

SEC("usdt")
int on_message(struct pt_regs *ctx)
{
	struct session_record record;
	struct call_key key = {};
	struct call_state call = {};
	struct task_struct *task = bpf_get_current_task_btf();
	__s64 offset = clock_offset(task);
	__sync_fetch_and_add(&losses.requests, 1);
	if (read_sample(ctx, &record, &key, &call.request, offset))
		return 0;
	/* A one-way request of an older library: nothing more is reported. */
	if (!key.sequence)
		return 0;
	if (offset)
		bpf_map_update_elem(&clock_offsets, &call.request.pid, &offset, BPF_ANY);
	call.before = switches[thread_slot(task->pid)].off_cpu;
	call.lacks_return = lacks_return(task->pid);
	bpf_map_update_elem(&calls, &key, &call, BPF_ANY);
	return 0;
}

/* Reads a probe with which a thread of the server reports more of a call: `count` times after session and sequence.
 * Returns the call. */
static __always_inline struct call_state *reported_call(struct pt_regs *ctx, struct session_record *record,
							struct call_key *key, __u64 *times, int count)
{
	long value = 0;
	bpf_usdt_arg(ctx, 0, &value);
	if (bpf_probe_read_user(record, sizeof(*record), (void *)value))
		return NULL;
	bpf_usdt_arg(ctx, 1, &value);
	key->session.number = record->number;
	key->session.created = record->created;
	key->sequence = value;
	__s64 offset = clock_offset(bpf_get_current_task_btf());
	for (int at = 0; at < count; at++) {
		bpf_usdt_arg(ctx, at + 2, &value);
		times[at] = value - offset;
	}
	/* One of another service is not there. */
	return bpf_map_lookup_elem(&calls, key);
}

/* A worker begins. */
SEC("usdt")
int on_handling(struct pt_regs *ctx)
{
	struct session_record record;
	struct call_key key = {};
	__u64 times[2] = {};
	struct call_state *call = reported_call(ctx, &record, &key, times, 2);
	if (!call)
		return 0;
	__u32 tid = bpf_get_current_task_btf()->pid;
	watch_thread(tid);
	struct work work = { .resumed = times[0], .picked = times[1] };
	bpf_map_update_elem(&works, &key, &work, BPF_ANY);
	call->before = switches[thread_slot(tid)].off_cpu;
	call->lacks_return = lacks_return(tid);
	return 0;
}

/* Splits the time between request and reply. Returns the time of the tracer's own probes in it, or -1 if its times are not
 * in order; `split` is zero then. */
static __always_inline __s64 split_receive(const struct work *work, __u64 received, __u64 sent, struct receive *split)
{
	if (!work || !work->ended) {
		/* It was not handled by this library's code for it: a snapshot, or an old version. */
		split->handler = sent - received;
		return 0;
	}
	if (work->resumed < received || work->picked < work->resumed || work->begun < work->picked ||
	    work->decoded < work->begun || work->ended < work->decoded || sent < work->ended)
		return -1;
	__u64 probe = work->resumed - received, rest = sent - work->ended, last = rest;
	/* Without a worker, nothing but a probe is between the end of the handler and the reply. With one, the reply waits for
	 * the reactor too: that probe costs about as much as the first. */
	if (work->begun != work->resumed && last > probe)
		last = probe;
	split->queue = work->picked - work->resumed + rest - last;
	split->decode = work->decoded - work->begun;
	split->handler = work->ended - work->decoded;
	return probe + work->begun - work->picked + last;
}

static __always_inline void count_receive(__u32 slot, const struct receive *split, const struct work *work, __u64 weight)
{
	count(slot, RECEIVE, split->queue + split->decode + split->handler, weight);
	count(slot, QUEUE, split->queue, weight);
	count(slot, DECODE, split->decode, weight);
	count(slot, HANDLER, split->handler, weight);
	if (!work || !work->ended || work->lacks_return)
		return;
	const struct off_cpu *off = &work->off_cpu;
	__u64 off_cpu = off->runnable + off->sleeping + off->stopped;
	if (off_cpu > split->handler)
		return;
	count(slot, HANDLER_ON_CPU, split->handler - off_cpu, weight);
	if (off->runnable)
		count(slot, HANDLER_RUNNABLE, off->runnable, weight);
	if (off->sleeping)
		count(slot, HANDLER_SLEEPING, off->sleeping, weight);
	if (off->stopped)
		count(slot, HANDLER_STOPPED, off->stopped, weight);
}

static __always_inline void report_call(const struct call_key *key, const struct session_record *record,
					const struct direction *request, const struct work *work,
					const struct receive *split, const struct direction *reply,
					__u64 weight)
{
	struct call_event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event) {
		__sync_fetch_and_add(&losses.dropped, 1);
		return;
	}
	event->kind = key->sequence & POST ? POST_EVENT : CALL_EVENT;
	event->session = key->session;
	event->sequence = key->sequence;
	event->weight = weight;
	__builtin_memcpy(event->service, record->service, NAME);
	event->request = *request;
	if (work)
		event->work = *work;
	else
		__builtin_memset(&event->work, 0, sizeof(event->work));
	event->receive = *split;
	event->reply = *reply;
	bpf_ringbuf_submit(event, wake_consumer());
}

/* The handler of a one-way request returned: nothing more comes. The client reports nothing, so its time namespace is taken
 * to be the server's. */
static __always_inline void end_post(const struct session_record *record, const struct call_key *key,
				     struct direction *request, const struct work *work)
{
	struct receive split = {};
	__u32 client = record->peer;
	if (!only_pid || request->pid == only_pid || client == only_pid) {
		__s64 probes = -1;
		if (normalize_times(request, clock_offset(bpf_get_current_task_btf())))
			probes = split_receive(work, request->received, work->ended, &split);
		if (probes < 0) {
			__sync_fetch_and_add(&losses.disordered, 1);
		} else {
			__u64 weight = sample_weight(key, POSTS);
			__u32 slot = session_slot(record, POSTS, request->pid, client);
			count_direction(slot, request, request_stages, weight);
			count_receive(slot, &split, work, weight);
			__u64 duration = work->ended - request->sent - probes;
			count_whole(slot, duration, key, work->ended, weight);
			struct direction none = { .sent = work->ended, .published = work->ended, .received = work->ended };
			none.pid = client;
			if (duration >= min_duration)
				report_call(key, record, request, work, &split, &none, weight);
		}
	}
	bpf_map_delete_elem(&calls, key);
	bpf_map_delete_elem(&works, key);
}

/* The handler returned, in the same thread that began. */
SEC("usdt")
int on_handled(struct pt_regs *ctx)
{
	struct session_record record;
	struct call_key key = {};
	__u64 times[3] = {};
	struct call_state *call = reported_call(ctx, &record, &key, times, 3);
	if (!call)
		return 0;
	struct work *known = bpf_map_lookup_elem(&works, &key), work = { .resumed = times[0], .picked = times[0] };
	if (known)
		work = *known;
	work.begun = times[0];
	work.decoded = times[1];
	work.ended = times[2];
	struct task_struct *task = bpf_get_current_task_btf();
	__u32 slot = thread_slot(task->pid);
	/* Another thread may have displaced this one meanwhile, which is counted. */
	if (switches[slot].tid == task->pid) {
		struct off_cpu now = switches[slot].off_cpu;
		work.off_cpu.runnable = now.runnable - call->before.runnable;
		work.off_cpu.sleeping = now.sleeping - call->before.sleeping;
		work.off_cpu.stopped = now.stopped - call->before.stopped;
	}
	work.lacks_return = call->lacks_return || lacks_return(task->pid);
	work.tid = tracer_pid(task);
	bpf_get_current_comm(work.comm, COMM);
	if (key.sequence & POST)
		end_post(&record, &key, &call->request, &work);
	else
		bpf_map_update_elem(&works, &key, &work, BPF_ANY);
	return 0;
}

SEC("usdt")
int on_reply(struct pt_regs *ctx)
{
	struct session_record record;
	struct call_key key = {};
	struct direction reply = {};
	struct receive split = {};
	__s64 offset = clock_offset(bpf_get_current_task_btf());
	__sync_fetch_and_add(&losses.replies, 1);
	if (read_sample(ctx, &record, &key, &reply, offset))
		return 0;
	struct call_state *call = bpf_map_lookup_elem(&calls, &key);
	if (!call) {
		__sync_fetch_and_add(&losses.unmatched, 1);
		return 0;
	}
	struct direction *request = &call->request;
	struct work *work = bpf_map_lookup_elem(&works, &key);
	/* Only here are the pids of both ends known in the tracer's namespace: `peer` is a pid in the other end's namespace. */
	if (!only_pid || request->pid == only_pid || reply.pid == only_pid) {
		__s64 *server_offset = bpf_map_lookup_elem(&clock_offsets, &request->pid);
		bool ordered = normalize_times(request, offset);
		ordered &= normalize_times(&reply, server_offset ? *server_offset : 0);
		__s64 probes = -1;
		if (ordered && reply.sent >= request->received)
			probes = split_receive(work, request->received, reply.sent, &split);
		if (probes < 0) {
			__sync_fetch_and_add(&losses.disordered, 1);
		} else {
			__u64 weight = sample_weight(&key, CALLS);
			__u32 slot = session_slot(&record, CALLS, request->pid, reply.pid);
			count_direction(slot, request, request_stages, weight);
			count_receive(slot, &split, work, weight);
			count_direction(slot, &reply, reply_stages, weight);
			count(slot, REPLY, reply.received - reply.sent, weight);
			__u64 duration = reply.received - request->sent - probes;
			count_whole(slot, duration, &key, reply.received, weight);
			if (duration >= min_duration)
				report_call(&key, &record, request, work, &split, &reply, weight);
		}
	}
	/* They were read in place: a copy has no room on the stack. */
	bpf_map_delete_elem(&calls, &key);
	if (work)
		bpf_map_delete_elem(&works, &key);
	return 0;
}

#endif
