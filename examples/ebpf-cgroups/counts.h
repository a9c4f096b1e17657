/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* What the kernel programs count, and the plugin reads. */
#ifndef COUNTS_H
#define COUNTS_H

enum count {
    CPU_NS,
    SWITCHES,
    FAULTS,
    BYTES_READ,
    BYTES_WRITTEN,
    TCP_RECEIVED,
    TCP_SENT,
    COUNTS,
};

/* Of one cgroup on one CPU, since the first event there. One cache line. */
struct counts {
    unsigned long long of[COUNTS + 1];
};

/* The maximum number of CPUs. */
#define CPUS 1024

/* What a CPU runs since the last context switch. */
struct cpu {
    unsigned long long since;
    unsigned long long is_idle;
} __attribute__((aligned(64)));

#endif
