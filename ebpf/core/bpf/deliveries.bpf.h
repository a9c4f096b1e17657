/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Snapshots and events: from the publisher to each of its readers. */
#ifndef BELLWIRE_DELIVERIES_H
#define BELLWIRE_DELIVERIES_H

/* The maximum number of publications that readers may still take. */
#define MAX_PUBLISHED 16384

/* What was published, by the creation of the publisher's board and by number. */
struct published_key {
	__u64 publisher;
	__u64 sequence;
};

/* Times are of the host's monotonic clock. */
struct published {
	__u64 begun;
	__u64 published;
	__u64 length;
	__u32 pid;
	__u32 tid;
	char comm[COMM];
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_PUBLISHED);
	__type(key, struct published_key);
	__type(value, struct published);
} publications SEC(".maps");

/* What a reader took. */
struct delivery {
	struct published_key of;
	struct direction direction;
	__u64 taken;
	__u64 validated;
	__u64 is_mapped;
};

/* The last one of each reader that was taken before its publisher reported it: it is joined with the next one. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_SESSIONS);
	__type(key, struct session_key);
	__type(value, struct delivery);
} early_deliveries SEC(".maps");

SEC("usdt")
int on_published(struct pt_regs *ctx)
{
	struct session_record record;
	long args[5] = {};
	for (int at = 0; at < 5; at++)
		bpf_usdt_arg(ctx, at, &args[at]);
	if (bpf_probe_read_user(&record, sizeof(record), (void *)args[0])) {
		__sync_fetch_and_add(&losses.unread, 1);
		return 0;
	}
	if (!matches_service(&record))
		return 0;
	struct task_struct *task = bpf_get_current_task_btf();
	__s64 offset = clock_offset(task);
	struct published_key key = { .publisher = record.created, .sequence = args[1] };
	struct published published = { .begun = args[2] - offset, .published = args[3] - offset, .length = args[4] };
	published.pid = tracer_pid(task->group_leader);
	published.tid = tracer_pid(task);
	bpf_get_current_comm(published.comm, COMM);
	bpf_map_update_elem(&publications, &key, &published, BPF_ANY);
	return 0;
}

static __always_inline void report_delivery(const struct call_key *key, const struct session_record *record,
					    const struct delivery *delivery, const struct published *published,
					    __u64 weight)
{
	struct delivery_event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event) {
		__sync_fetch_and_add(&losses.dropped, 1);
		return;
	}
	event->kind = DELIVERY;
	event->session = key->session;
	event->sequence = key->sequence;
	__builtin_memcpy(event->service, record->service, NAME);
	event->weight = weight;
	event->direction = delivery->direction;
	event->taken = delivery->taken;
	event->validated = delivery->validated;
	event->is_mapped = delivery->is_mapped;
	event->publisher_pid = published->pid;
	event->publisher_tid = published->tid;
	event->pad = 0;
	__builtin_memcpy(event->publisher_comm, published->comm, COMM);
	bpf_ringbuf_submit(event, wake_consumer());
}

/* Joins what a reader took with what was published. Returns false if the publisher has not reported it. Not inlined, since
 * it is done for two. */
__attribute__((noinline)) int end_delivery(const struct session_record *record, struct delivery *delivery)
{
	if (!record || !delivery)
		return 0;
	struct published *published = bpf_map_lookup_elem(&publications, &delivery->of);
	if (!published)
		return 0;
	struct direction *direction = &delivery->direction;
	if (only_pid && published->pid != only_pid && direction->pid != only_pid)
		return 1;
	direction->sent = published->begun;
	direction->published = published->published;
	direction->length = published->length;
	/* The reader may notice before the publisher reads the clock: in a ring, or by the generation before. */
	if (direction->received < direction->published)
		direction->published = direction->received;
	if (direction->sent > direction->published)
		direction->sent = direction->published;
	if (!normalize_times(direction, 0) || delivery->taken < direction->received ||
	    delivery->validated < delivery->taken) {
		__sync_fetch_and_add(&losses.disordered, 1);
		return 1;
	}
	struct call_key key = { .sequence = delivery->of.sequence };
	key.session.number = record->number;
	key.session.created = record->created;
	__u64 weight = sample_weight(&key, DELIVERIES);
	__u32 slot = session_slot(record, DELIVERIES, published->pid, direction->pid);
	count_direction(slot, direction, request_stages, weight);
	count(slot, delivery->is_mapped ? MAP : COPY, delivery->taken - direction->received, weight);
	count(slot, VALIDATE, delivery->validated - delivery->taken, weight);
	__u64 duration = delivery->validated - direction->sent;
	count_whole(slot, duration, &key, delivery->validated, weight);
	if (duration >= min_duration)
		report_delivery(&key, record, delivery, published, weight);
	return 1;
}

/* A reader took a snapshot or event; the cookie says whether it mapped it. */
SEC("usdt")
int on_delivery(struct pt_regs *ctx)
{
	struct session_record record;
	struct delivery delivery = {};
	__u64 args[SAMPLE_ARGS];
	if (sample_args(ctx, args) || bpf_probe_read_user(&record, sizeof(record), (void *)args[0])) {
		__sync_fetch_and_add(&losses.unread, 1);
		return 0;
	}
	if (!matches_service(&record))
		return 0;
	struct task_struct *task = bpf_get_current_task_btf();
	__s64 offset = clock_offset(task);
	delivery.of.publisher = args[1];
	delivery.of.sequence = args[2];
	delivery.direction.received = args[3] - offset;
	delivery.taken = args[4] - offset;
	delivery.validated = args[5] - offset;
	delivery.is_mapped = bpf_usdt_cookie(ctx);
	read_wakeup(&delivery.direction, task);
	struct session_key key = { .number = record.number, .created = record.created };
	struct delivery *early = bpf_map_lookup_elem(&early_deliveries, &key);
	if (early) {
		if (!end_delivery(&record, early))
			__sync_fetch_and_add(&losses.unpublished, 1);
		bpf_map_delete_elem(&early_deliveries, &key);
	}
	if (!end_delivery(&record, &delivery))
		bpf_map_update_elem(&early_deliveries, &key, &delivery, BPF_ANY);
	return 0;
}

#endif
