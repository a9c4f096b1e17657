/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The kernel types that the programs use, with only the fields that they use: CO-RE relocates the offsets at load time. */
#ifndef BELLWIRE_KERNEL_H
#define BELLWIRE_KERNEL_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;
#define true 1
#define false 0
#define NULL ((void *)0)

enum {
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
	BPF_F_MMAPABLE = 1 << 10,
	BPF_F_USER_STACK = 1 << 8,
	BPF_RB_NO_WAKEUP = 1,
	BPF_RB_FORCE_WAKEUP = 2,
	BPF_RB_AVAIL_DATA = 0,
	BPF_F_CURRENT_CPU = 0xffffffff,
};

enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_STACK_TRACE = 7,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_QUEUE = 22,
	BPF_MAP_TYPE_RINGBUF = 27,
};

struct timespec64 {
	__s64 tv_sec;
	long tv_nsec;
} __attribute__((preserve_access_index));

struct timens_offsets {
	struct timespec64 monotonic;
} __attribute__((preserve_access_index));

struct time_namespace {
	struct timens_offsets offsets;
} __attribute__((preserve_access_index));

struct nsproxy {
	struct time_namespace *time_ns;
} __attribute__((preserve_access_index));

struct ns_common {
	unsigned int inum;
} __attribute__((preserve_access_index));

struct pid_namespace {
	struct ns_common ns;
} __attribute__((preserve_access_index));

struct upid {
	int nr;
	struct pid_namespace *ns;
} __attribute__((preserve_access_index));

struct pid {
	unsigned int level;
	struct upid numbers[];
} __attribute__((preserve_access_index));

struct kernfs_node {
	__u64 id;
} __attribute__((preserve_access_index));

struct cgroup {
	struct kernfs_node *kn;
} __attribute__((preserve_access_index));

struct css_set {
	struct cgroup *dfl_cgrp;
} __attribute__((preserve_access_index));

struct sched_entity {
	__u64 sum_exec_runtime;
} __attribute__((preserve_access_index));

struct task_struct {
	unsigned int __state;
	int pid;
	int tgid;
	char comm[16];
	struct nsproxy *nsproxy;
	struct task_struct *group_leader;
	struct pid *thread_pid;
	struct css_set *cgroups;
	struct sched_entity se;
} __attribute__((preserve_access_index));

/* Tells bpf_tracing.h to use the kernel's names of the registers. */
#define __VMLINUX_H__

#if defined(__TARGET_ARCH_x86)
struct pt_regs {
	unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip;
} __attribute__((preserve_access_index));
/* The registers before orig_ax, among which are all that hold arguments. */
#define REGISTERS 15
#define SYSTEM_CALL orig_ax
/* poll, futex, epoll_wait, ppoll, epoll_pwait, futex_waitv */
static const __u32 waiting_calls[] = { 7, 202, 232, 271, 281, 449 };
#elif defined(__TARGET_ARCH_arm64)
struct user_pt_regs {
	__u64 regs[31];
	__u64 sp, pc, pstate;
} __attribute__((preserve_access_index));
struct pt_regs {
	struct user_pt_regs user_regs;
	__s32 syscallno;
} __attribute__((preserve_access_index));
#define REGISTERS 31
#define SYSTEM_CALL syscallno
/* epoll_pwait, ppoll, futex, futex_waitv */
static const __u32 waiting_calls[] = { 22, 73, 98, 449 };
#endif

#endif
