/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Definitions that the kernel programs and bellwire-trace share. src/histogram.rs has the same buckets. */
#ifndef BELLWIRE_TRACE_H
#define BELLWIRE_TRACE_H

/* The maximum number of sessions that are counted separately; entry 0 counts all others. */
#define SESSIONS 256
#define NAME 64
#define COMM 16
/* The innermost functions of the kernel that a time off the CPU has. */
#define KERNEL_FRAMES 32

/* The number of buckets per power of two, and its binary logarithm. */
#define SUB_BITS 3
#define SUBS (1 << SUB_BITS)
/* Up to 2^40 ns, 18 minutes. */
#define BUCKETS (SUBS * 38)

/* The stages of the latency of a call: four of the request, the server's as a whole, its three, the four states of the
 * handler's thread, the reply as a whole, its four; the three of a snapshot or event that follow the first four; and all. */
enum stage {
	SEND,
	PUBLISH,
	WAKE,
	ON_CPU,
	RECEIVE,
	QUEUE,
	DECODE,
	HANDLER,
	HANDLER_ON_CPU,
	HANDLER_RUNNABLE,
	HANDLER_SLEEPING,
	HANDLER_STOPPED,
	REPLY,
	REPLY_SEND,
	REPLY_PUBLISH,
	REPLY_WAKE,
	REPLY_ON_CPU,
	COPY,
	MAP,
	VALIDATE,
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

/* What a histogram is of. */
enum pattern {
	CALLS,
	/* One-way requests. */
	POSTS,
	/* Snapshots and events. */
	DELIVERIES,
	PATTERNS,
};

/* What is counted together: one session or, if its number and time are zero, all sessions of a service. */
struct stats_key {
	struct session_key session;
	char service[NAME];
	__u32 pattern;
	__u32 pad;
};

/* The number of a one-way request, which has no id on the wire, has this bit. */
#define POST (1ULL << 63)

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

/* How long a thread was off the CPU, by reason. */
struct off_cpu {
	/* It could have run. */
	__u64 runnable;
	__u64 sleeping;
	/* By a signal or a debugger. */
	__u64 stopped;
};

/* What the server does between the request and the reply. Times are of the host's monotonic clock. */
struct work {
	/* When its thread continued, after the probe that reports the request. */
	__u64 resumed;
	/* When a worker took it, and continued after a probe; both are `resumed` without workers. */
	__u64 picked;
	__u64 begun;
	__u64 decoded;
	/* When the answer was encoded; 0 if that is not known. */
	__u64 ended;
	/* Of the thread that handled it, while it did. */
	struct off_cpu off_cpu;
	__u32 tid;
	/* No switch to the thread was seen when it returned: `off_cpu` lacks a part. */
	__u32 lacks_return;
	char comm[COMM];
};

/* How the time between the request and the reply was spent; the time of the tracer's own probes is in none of them. */
struct receive {
	__u64 queue;
	__u64 decode;
	__u64 handler;
};

/* The kind of an event. */
enum event_kind {
	CALL_EVENT,
	LANE_FULL,
	LANE_RESIZED,
	SESSION_OPENED,
	SESSION_CLOSED,
	CALL_FAILED,
	SLOW_CALL,
	OFF_CPU,
	MISSED,
	POST_EVENT,
	DELIVERY,
};

/* A call that was slow, as its client saw it. */
struct slow_event {
	__u64 kind;
	struct session_key session;
	__u64 sequence;
	char service[NAME];
	/* Of the host's monotonic clock. */
	__u64 began;
	__u64 ended;
	__u64 length;
	/* In the client's pid namespace. */
	__u64 peer;
	__u64 cgroup;
	__u32 pid;
	__u32 tid;
	char comm[COMM];
};

/* A time during which a watched thread was off its CPU, while slow calls are looked for. */
struct off_event {
	__u64 kind;
	__u64 left;
	/* When it could run again. */
	__u64 runnable;
	__u64 entered;
	__u64 cgroup;
	__u32 pid;
	__u32 tid;
	/* `enum off_state` of threads.bpf.h. */
	__u32 state;
	__u32 waker;
	/* The thread that got the CPU. */
	__u32 next;
	/* Whether it is one that takes sampled messages. */
	__u32 takes_messages;
	/* A number in the map `stacks`, or negative. */
	__s64 user_stack;
	/* The innermost first, and zeroes. */
	__u64 kernel_stack[KERNEL_FRAMES];
	char comm[COMM];
	char waker_comm[COMM];
	char next_comm[COMM];
};

/* A call, or a one-way request, whose reply is empty and is sent when its handler returned; for snoop and record. */
struct call_event {
	__u64 kind;
	struct session_key session;
	__u64 sequence;
	char service[NAME];
	/* How many calls it stands for. */
	__u64 weight;
	struct direction request;
	struct work work;
	struct receive receive;
	struct direction reply;
};

/* A snapshot or event that a reader took, for record. Times are of the host's monotonic clock. */
struct delivery_event {
	__u64 kind;
	struct session_key session;
	__u64 sequence;
	char service[NAME];
	/* How many it stands for. */
	__u64 weight;
	/* From the publisher; received when the reader noticed it. */
	struct direction direction;
	/* When the reader had copied or mapped it. */
	__u64 taken;
	__u64 validated;
	__u32 is_mapped;
	__u32 publisher_pid;
	__u32 publisher_tid;
	__u32 pad;
	char publisher_comm[COMM];
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

/* The slowest of the last calls. */
struct exemplar {
	__u64 nanos;
	__u64 sequence;
	__u64 session;
	/* Of the host's monotonic clock. */
	__u64 at;
};

/* src/stats.rs reads it. */
struct session_stats {
	struct stats_key key;
	__u32 server;
	__u32 client;
	/* The calls that were sampled; the histograms are weighted, and count all calls. */
	__u64 samples;
	struct exemplar slowest;
	struct total totals[STAGE_COUNT];
	struct buckets buckets[STAGE_COUNT];
};

/* How many sampled messages were seen, and how many of them and of the events were lost, by reason. */
struct losses {
	/* Calls whose times are not in order. */
	__u64 disordered;
	/* Answers whose request was not seen. */
	__u64 unmatched;
	/* Events for which the ring buffer had no room. */
	__u64 dropped;
	/* Session records that could not be read. */
	__u64 unread;
	/* Samples of threads whose wakeup was not watched yet: it is in the stage publish. */
	__u64 unwatched;
	/* Threads that are no longer watched, because another one has the same place. */
	__u64 displaced;
	/* Requests and answers that were reported, before any filter. */
	__u64 requests;
	__u64 replies;
	/* Slow calls that were reported. */
	__u64 slow_calls;
	/* Snapshots and events that a reader took, and that their publisher did not report. */
	__u64 unpublished;
	/* Switches to a thread that were not seen. */
	__u64 unseen_returns;
};

#endif
