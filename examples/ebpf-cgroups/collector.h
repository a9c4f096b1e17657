/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The kernel programs and what they have counted. */
#ifndef COLLECTOR_H
#define COLLECTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include "counts.h"

struct collector;

/* One cgroup's counts, now and at the read before. */
struct sample {
    /* Of the unified hierarchy, as bpf_get_current_cgroup_id returns it. */
    uint64_t id;
    uint64_t now[COUNTS];
    uint64_t before[COUNTS];
    /* When they last changed, in seconds since the machine started. */
    double changed;
    /* Belongs to netdata.c: the id of its charts, or NULL. */
    char *chart;
};

/* Loads and attaches the programs, for at most `max_cgroups` at once; NULL after a message to stderr. */
struct collector *collector_open(uint32_t max_cgroups, bool measures_cost);

/* Reads the counts of all cgroups. The samples ascend by id and stay until the next read. Returns their number, or a
 * negative errno. */
long collector_read(struct collector *collector, double now, struct sample **samples);

/* Drops a cgroup whose counts have not changed for long, and which is gone. */
void collector_forget(struct collector *collector, struct sample *sample);

/* Whether this kernel has the tracepoints for a count. */
bool collector_has(const struct collector *collector, enum count count);

/* The number of events that were not counted, since the map was full. */
uint64_t collector_lost(const struct collector *collector);

/* Writes what each program has taken so far. */
void collector_print_cost(const struct collector *collector, double elapsed, FILE *to);

void collector_close(struct collector *collector);

#endif
