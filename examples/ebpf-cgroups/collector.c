/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "collector.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include "counts.skel.h"

/* How many cgroups one system call reads. */
#define BATCH 512

struct collector {
    struct counts_bpf *programs;
    size_t cpus;
    uint64_t batch_ids[BATCH];
    struct counts *batch;
    struct samples {
        struct sample *at;
        size_t count, room;
    } samples, former;
    bool has[COUNTS];
    int cost;
};

static int complain(enum libbpf_print_level level, const char *format, va_list arguments)
{
    return level == LIBBPF_WARN ? vfprintf(stderr, format, arguments) : 0;
}

/* Leaves out programs whose tracepoints this kernel lacks. */
static void choose_programs(struct collector *collector)
{
    const struct counts_bpf *programs = collector->programs;
    const struct {
        struct bpf_program *program;
        enum count count;
    } counted[] = {
        { programs->progs.switched, CPU_NS },
        { programs->progs.switched, SWITCHES },
        { programs->progs.faulted_in_kernel, FAULTS },
        { programs->progs.faulted, FAULTS },
        { programs->progs.queued, BYTES_READ },
        { programs->progs.queued, BYTES_WRITTEN },
        { programs->progs.received, TCP_RECEIVED },
        { programs->progs.sent, TCP_SENT },
    };
    for (size_t i = 0; i < sizeof counted / sizeof *counted; i++) {
        const char *tracepoint = bpf_program__section_name(counted[i].program) + strlen("tp_btf/");
        collector->has[counted[i].count] = libbpf_find_vmlinux_btf_id(tracepoint, BPF_TRACE_RAW_TP) > 0;
        if (!collector->has[counted[i].count]) {
            bpf_program__set_autoload(counted[i].program, false);
            fprintf(stderr, "this kernel has no tracepoint %s: what it shows is not counted\n", tracepoint);
        }
    }
}

struct collector *collector_open(uint32_t max_cgroups, bool measures_cost)
{
    struct collector *collector = calloc(1, sizeof *collector);
    if (!collector)
        return NULL;
    libbpf_set_print(complain);
    collector->cost = measures_cost ? bpf_enable_stats(BPF_STATS_RUN_TIME) : -1;
    collector->cpus = (size_t)libbpf_num_possible_cpus();
    collector->batch = calloc(BATCH * collector->cpus, sizeof *collector->batch);
    collector->programs = counts_bpf__open();
    if (!collector->batch || !collector->programs)
        goto failed;
    choose_programs(collector);
    if (bpf_map__set_max_entries(collector->programs->maps.cgroups, max_cgroups) || counts_bpf__load(collector->programs) ||
        counts_bpf__attach(collector->programs))
        goto failed;
    return collector;
failed:
    fprintf(stderr, "cannot load the kernel programs: they need root, or CAP_BPF and CAP_PERFMON, and the kernel's BTF\n");
    collector_close(collector);
    return NULL;
}

/* Adds the time of what runs now. */
static void account_running(struct collector *collector)
{
    const struct counts_bpf *programs = collector->programs;
    for (size_t cpu = 0; cpu < collector->cpus && cpu < CPUS; cpu++) {
        if (programs->bss->cpus[cpu].is_idle || !programs->bss->cpus[cpu].since)
            continue;
        LIBBPF_OPTS(bpf_test_run_opts, options, .flags = BPF_F_TEST_RUN_ON_CPU, .cpu = (uint32_t)cpu);
        /* A CPU that has gone offline since runs nothing. */
        bpf_prog_test_run_opts(bpf_program__fd(programs->progs.running), &options);
    }
}

/* Appends the sums over all CPUs. */
static int append(struct collector *collector, size_t read)
{
    struct samples *samples = &collector->samples;
    if (samples->count + read > samples->room) {
        size_t room = 2 * samples->room + BATCH;
        struct sample *at = reallocarray(samples->at, room, sizeof *at);
        if (!at)
            return -ENOMEM;
        samples->at = at;
        samples->room = room;
    }
    for (size_t i = 0; i < read; i++) {
        struct sample *sample = &samples->at[samples->count++];
        memset(sample, 0, sizeof *sample);
        sample->id = collector->batch_ids[i];
        for (size_t cpu = 0; cpu < collector->cpus; cpu++)
            for (int count = 0; count < COUNTS; count++)
                sample->now[count] += collector->batch[i * collector->cpus + cpu].of[count];
    }
    return 0;
}

static int read_map(struct collector *collector)
{
    int map = bpf_map__fd(collector->programs->maps.cgroups);
    uint32_t position, *from = NULL;
    int error;
    do {
        uint32_t read = BATCH;
        error = bpf_map_lookup_batch(map, from, &position, collector->batch_ids, collector->batch, &read, NULL);
        from = &position;
        if (error && error != -ENOENT)
            return error;
        int appended = append(collector, read);
        if (appended)
            return appended;
    } while (!error);
    return 0;
}

static int by_id(const void *left, const void *right)
{
    uint64_t a = ((const struct sample *)left)->id, b = ((const struct sample *)right)->id;
    return (a > b) - (a < b);
}

/* Takes over what is known of the same cgroups. Both ascend by id. */
static void carry_over(struct samples *samples, const struct samples *former, double now)
{
    const struct sample *old = former->at, *end = former->at + former->count;
    for (struct sample *sample = samples->at; sample < samples->at + samples->count; sample++) {
        while (old < end && old->id < sample->id)
            old++;
        sample->changed = now;
        if (old == end || old->id != sample->id)
            continue;
        memcpy(sample->before, old->now, sizeof sample->before);
        sample->chart = old->chart;
        if (memcmp(sample->now, sample->before, sizeof sample->now) == 0)
            sample->changed = old->changed;
    }
}

long collector_read(struct collector *collector, double now, struct sample **samples)
{
    struct samples former = collector->samples;
    collector->samples = collector->former;
    collector->samples.count = 0;
    collector->former = former;
    account_running(collector);
    int error = read_map(collector);
    if (error)
        return error;
    if (collector->samples.count)
        qsort(collector->samples.at, collector->samples.count, sizeof *collector->samples.at, by_id);
    carry_over(&collector->samples, &collector->former, now);
    *samples = collector->samples.at;
    return (long)collector->samples.count;
}

void collector_forget(struct collector *collector, struct sample *sample)
{
    bpf_map_delete_elem(bpf_map__fd(collector->programs->maps.cgroups), &sample->id);
}

bool collector_has(const struct collector *collector, enum count count)
{
    return collector->has[count];
}

uint64_t collector_lost(const struct collector *collector)
{
    return collector->programs->bss->lost;
}

void collector_print_cost(const struct collector *collector, double elapsed, FILE *to)
{
    struct bpf_program *program;
    fprintf(to, "%-20s %12s %10s %14s %10s\n", "program", "runs", "ns a run", "% of one CPU", "missed");
    bpf_object__for_each_program(program, collector->programs->obj) {
        struct bpf_prog_info info = { 0 };
        uint32_t size = sizeof info;
        if (bpf_obj_get_info_by_fd(bpf_program__fd(program), &info, &size) || !info.run_cnt)
            continue;
        fprintf(to, "%-20s %12" PRIu64 " %10.0f %14.3f %10" PRIu64 "\n", bpf_program__name(program), (uint64_t)info.run_cnt,
                (double)info.run_time_ns / (double)info.run_cnt, (double)info.run_time_ns / elapsed / 1e7,
                (uint64_t)info.recursion_misses);
    }
}

void collector_close(struct collector *collector)
{
    counts_bpf__destroy(collector->programs);
    if (collector->cost >= 0)
        close(collector->cost);
    free(collector->batch);
    free(collector->samples.at);
    free(collector->former.at);
    free(collector);
}
