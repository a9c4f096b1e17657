/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* What the programs in the kernel and bellwire-trace have in common. src/histogram.rs has the same buckets. */
#ifndef BELLWIRE_TRACE_H
#define BELLWIRE_TRACE_H

/* Sessions that are told apart; entry 0 counts those beyond. */
#define SESSIONS 256
#define NAME 64
#define COMM 16

/* A power of two has this many buckets. */
#define SUB_BITS 3
#define SUBS (1 << SUB_BITS)
/* Up to 2^40 ns, 18 minutes. */
#define BUCKETS (SUBS * 38)

/* What is told of a call: six stages of the request's way, the same of the answer's, and the whole. */
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
	STAGES,
};

/* The session's record of docs/tracing.md. */
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

/* What is counted together: a session, or with zeroes for its number and time all of a service. */
struct stats_key {
	struct session_key session;
	char service[NAME];
};

struct call_key {
	struct session_key session;
	__u64 sequence;
};

/* One direction of a call, by the host's monotonic clock. */
struct way {
	__u64 sent;
	__u64 published;
	/* 0: the thread was awake. */
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

/* What an event is of. */
enum kind {
	A_CALL,
	LANE_FULL,
	LANE_RESIZED,
	SESSION_OPENED,
	SESSION_CLOSED,
	CALL_FAILED,
};

/* A call, as snoop and record get it. */
struct call_event {
	__u64 kind;
	struct session_key session;
	__u64 sequence;
	char service[NAME];
	struct way request;
	struct way reply;
};

/* What happened beside the calls: the arguments after the session, as docs/tracing.md has them. */
struct note_event {
	__u64 kind;
	/* By the host's monotonic clock. */
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
	struct total totals[STAGES];
	struct buckets buckets[STAGES];
};

/* What was not counted, and why. */
struct losses {
	/* Calls whose times are not in order. */
	__u64 disordered;
	/* Answers whose request was not seen. */
	__u64 unmatched;
	/* Events for which there was no room. */
	__u64 dropped;
	/* Records that could not be read. */
	__u64 unread;
};

#endif
