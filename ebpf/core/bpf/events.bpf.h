/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* What bellwire-trace reads one by one: the buffers, and what happens to sessions. */
#ifndef BELLWIRE_EVENTS_H
#define BELLWIRE_EVENTS_H

/* The memory for events that bellwire-trace has not read yet. */
#define EVENT_BYTES (1 << 22)

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, EVENT_BYTES);
} events SEC(".maps");

/* How an event is submitted: the consumer looks every 100 ms, and is woken only if much is waiting. A wakeup for each event
 * would cost more than the event. */
static __always_inline __u64 wake_consumer(void)
{
	return bpf_ringbuf_query(&events, BPF_RB_AVAIL_DATA) > EVENT_BYTES / 4 ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP;
}

/* Slow calls: none is lost because other events take all room. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, EVENT_BYTES / 4);
} slow_events SEC(".maps");

#endif
