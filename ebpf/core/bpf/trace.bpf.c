/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Joins the samples of both ends of a session with events of the scheduler: docs/tracing.md. */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
/* One for each probe of each file; src/error.rs has the same number. */
#define BPF_USDT_MAX_SPEC_CNT 2048
/* For kernels without cookies, on which these programs cannot run. */
#define BPF_USDT_MAX_IP_CNT 1
#include <bpf/usdt.bpf.h>
#include "trace.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#define SECOND 1000000000LL

/* Set before the programs are loaded. */
const volatile __u32 only_pid = 0;
const volatile char only_service[NAME] = {};
/* Calls of at least this duration are reported as events; none if all bits are set. */
const volatile __u64 min_duration = ~0ULL;
/* Calls that wait at least this long are reported, and what their threads waited for; none if all bits are set. */
const volatile __u64 all_slower_than = ~0ULL;
/* The pid namespace of the tracer: pids are reported as seen there. */
const volatile __u32 pid_namespace = 0;

struct losses losses;

#include "stats.bpf.h"
#include "events.bpf.h"
#include "threads.bpf.h"
#include "samples.bpf.h"
#include "calls.bpf.h"
#include "deliveries.bpf.h"
#include "sessions.bpf.h"
#include "slow.bpf.h"

/* Empty: attaching to the probe is what selects the sampling rate. */
SEC("usdt")
int on_rate(struct pt_regs *ctx)
{
	return 0;
}
