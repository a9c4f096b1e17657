/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Counts what each cgroup of the unified hierarchy does. Tracepoints only. */
#include <linux/bpf.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>
/* The kernel's types below are declared here. */
#define __VMLINUX_H__
#define NULL ((void *)0)
#include <bpf/bpf_tracing.h>
#include "counts.h"

/* The fields that are used: CO-RE relocates their offsets when the programs are loaded. */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct cgroup_root {
    int hierarchy_id;
};

struct kernfs_node {
    __u64 id;
};

struct cgroup {
    struct kernfs_node *kn;
    struct cgroup_root *root;
};

struct cgroup_subsys_state {
    struct cgroup *cgroup;
};

struct blkcg {
    struct cgroup_subsys_state css;
};

struct blkcg_gq {
    struct blkcg *blkcg;
};

struct bvec_iter {
    unsigned int bi_size;
};

struct bio {
    unsigned int bi_opf;
    struct bvec_iter bi_iter;
    struct blkcg_gq *bi_blkg;
};

struct task_struct {
    int pid;
};

struct sock_common {
    unsigned short skc_family;
};

struct sock {
    struct sock_common __sk_common;
    __u16 sk_protocol;
};

#pragma clang attribute pop

/* Of the kernel's blk_types.h and socket.h. */
#define REQ_OP_MASK 0xff
#define REQ_OP_READ 0
#define REQ_OP_WRITE 1
#define MSG_PEEK 2
#define AF_INET 2
#define AF_INET6 10
#define IPPROTO_TCP 6

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* Preallocated: a hash that allocates in the scheduler's tracepoints may deadlock on older kernels. */
struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_HASH);
    __uint(max_entries, 16384);
    __type(key, __u64);
    __type(value, struct counts);
} cgroups SEC(".maps");

struct cpu cpus[CPUS];

/* Events of cgroups for which the map had no room. */
__u64 lost;

static const struct counts zero;

/* The counts of a cgroup on this CPU; NULL where the map has no room. */
static __always_inline struct counts *counts_of(__u64 cgroup)
{
    struct counts *counts = bpf_map_lookup_elem(&cgroups, &cgroup);
    if (!counts) {
        bpf_map_update_elem(&cgroups, &cgroup, &zero, BPF_NOEXIST);
        counts = bpf_map_lookup_elem(&cgroups, &cgroup);
    }
    if (!counts)
        __sync_fetch_and_add(&lost, 1);
    return counts;
}

static __always_inline void add(__u64 cgroup, enum count count, __u64 n)
{
    struct counts *counts = counts_of(cgroup);
    if (counts)
        /* From Linux 7.0 on, a program may be preempted by itself on the same CPU. */
        __sync_fetch_and_add(&counts->of[count], n);
}

/* Accounts for the thread that ran since the last context switch, unless that was the idle one. */
static __always_inline void add_run(struct cpu *cpu, bool was_idle, bool is_switched)
{
    __u64 now = bpf_ktime_get_ns(), since = cpu->since;
    struct counts *counts = was_idle ? NULL : counts_of(bpf_get_current_cgroup_id());
    cpu->since = now;
    /* Interrupts are off here. */
    if (counts) {
        counts->of[CPU_NS] += since ? now - since : 0;
        counts->of[SWITCHES] += is_switched;
    }
}

SEC("tp_btf/sched_switch")
int BPF_PROG(switched, bool preempt, struct task_struct *prev, struct task_struct *next)
{
    /* The current cgroup is still that of `prev`. */
    struct cpu *cpu = &cpus[bpf_get_smp_processor_id() & (CPUS - 1)];
    add_run(cpu, prev->pid == 0, true);
    cpu->is_idle = next->pid == 0;
    return 0;
}

/* Run by the plugin, on each CPU that does not idle, before it reads: a thread may run for long without a switch. */
SEC("raw_tp")
int running(void *context)
{
    struct cpu *cpu = &cpus[bpf_get_smp_processor_id() & (CPUS - 1)];
    add_run(cpu, (__u32)bpf_get_current_pid_tgid() == 0, false);
    return 0;
}

SEC("tp_btf/page_fault_user")
int BPF_PROG(faulted)
{
    add(bpf_get_current_cgroup_id(), FAULTS, 1);
    return 0;
}

/* The kernel faults on a process's memory when it copies from or to it. */
SEC("tp_btf/page_fault_kernel")
int BPF_PROG(faulted_in_kernel, unsigned long address)
{
    if ((long)address > 0)
        add(bpf_get_current_cgroup_id(), FAULTS, 1);
    return 0;
}

/* Where io.stat counts. Whoever submits writeback is not who wrote: the bio names the cgroup that pays, unless the
 * controller `io` is in another hierarchy. */
SEC("tp_btf/block_bio_queue")
int BPF_PROG(queued, struct bio *bio)
{
    struct cgroup *cgroup = bio->bi_blkg->blkcg->css.cgroup;
    __u64 id = cgroup && cgroup->root->hierarchy_id == 0 ? cgroup->kn->id : 0;
    unsigned int operation = bio->bi_opf & REQ_OP_MASK;
    if (!id)
        id = bpf_get_current_cgroup_id();
    if (operation == REQ_OP_READ)
        add(id, BYTES_READ, bio->bi_iter.bi_size);
    else if (operation == REQ_OP_WRITE)
        add(id, BYTES_WRITTEN, bio->bi_iter.bi_size);
    return 0;
}

static __always_inline void add_tcp(struct sock *sk, enum count count, int bytes)
{
    unsigned short family = sk->__sk_common.skc_family;
    if (bytes > 0 && (family == AF_INET || family == AF_INET6) && sk->sk_protocol == IPPROTO_TCP)
        add(bpf_get_current_cgroup_id(), count, bytes);
}

SEC("tp_btf/sock_send_length")
int BPF_PROG(sent, struct sock *sk, int bytes, int flags)
{
    add_tcp(sk, TCP_SENT, bytes);
    return 0;
}

SEC("tp_btf/sock_recv_length")
int BPF_PROG(received, struct sock *sk, int bytes, int flags)
{
    if (!(flags & MSG_PEEK))
        add_tcp(sk, TCP_RECEIVED, bytes);
    return 0;
}
