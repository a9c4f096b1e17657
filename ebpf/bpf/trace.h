/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Definitions that the kernel programs and bellwire-trace share. src/histogram.rs has the same buckets. */
#ifndef BELLWIRE_TRACE_H
#define BELLWIRE_TRACE_H

/* The maximum number of sessions that are counted separately; entry 0 counts all others. */
#define SESSIONS 256
#define NAME 64
#define COMM 16

/* The number of buckets per power of two, and its binary logarithm. */
#define SUB_BITS 3
#define SUBS (1 << SUB_BITS)
/* Up to 2^40 ns, 18 minutes. */
#define BUCKETS (SUBS * 38)

/* The stages of the latency of a call: four of the request, the server's, the reply as a whole, its four, and the call. */
enum stage {
	SEND,
	PUBLISH,
	WAKE,
	ON_CPU,
	RECEIVE,
	REPLY,
	REPLY_SEND,
	REPLY_PUBLISH,
	REPLY_WAKE,
	REPLY_ON_CPU,
	CALL,
	STAGE_COUNT,
};

/* The session's record: docs/tracing.md. */
struct session_record {
	char service[NAME];
	__u64 number;
	__u64 role;
	__u64 peer;
	__u64 created;
};

struct session_key {
	__u64 number;
	__u64 created;
};

/* What is counted together: one session or, if its number and time are zero, all sessions of a service. */
struct stats_key {
	struct session_key session;
	char service[NAME];
};

struct call_key {
	struct session_key session;
	__u64 sequence;
};

/* One direction of a call: the request or the reply. Times are of the host's monotonic clock. */
struct direction {
	__u64 sent;
	__u64 published;
	/* 0 if the thread was awake. */
	__u64 waking;
	__u64 on_cpu;
	__u64 received;
	__u64 length;
	__u32 pid;
	__u32 tid;
	__u32 waker;
	__u32 pad;
	char comm[COMM];
	char waker_comm[COMM];
};

/* The kind of an event. */
enum event_kind {
	CALL_EVENT,
	LANE_FULL,
	LANE_RESIZED,
	SESSION_OPENED,
	SESSION_CLOSED,
	CALL_FAILED,
};

/* A call, for snoop and record. */
struct call_event {
	__u64 kind;
	struct session_key session;
	__u64 sequence;
	char service[NAME];
	struct direction request;
	struct direction reply;
};

/* What happened to a session. The arguments are those after the session in docs/tracing.md. */
struct session_event {
	__u64 kind;
	/* Of the host's monotonic clock. */
	__u64 at;
	struct session_key session;
	char service[NAME];
	__u64 role;
	__u64 args[3];
	__u32 pid;
	__u32 tid;
	char comm[COMM];
};

struct total {
	__u64 sum;
	__u64 max;
};

struct buckets {
	__u64 counts[BUCKETS];
};

/* src/stats.rs reads it. */
struct session_stats {
	struct stats_key key;
	__u32 server;
	__u32 client;
	struct total totals[STAGE_COUNT];
	struct buckets buckets[STAGE_COUNT];
};

/* How many sampled messages and events were lost, by reason. */
struct losses {
	/* Calls whose times are not in order. */
	__u64 disordered;
	/* Answers whose request was not seen. */
	__u64 unmatched;
	/* Events for which the ring buffer had no room. */
	__u64 dropped;
	/* Session records that could not be read. */
	__u64 unread;
};

#endif
