/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The two ways to show the counts. */
#ifndef OUTPUT_H
#define OUTPUT_H

#include <bellwire.h>
#include "collector.h"

/* One refresh: the counts, and the cgroups of the last snapshot. */
struct refresh {
    struct collector *collector;
    bw_cgroups *cgroups;
    /* Whether a provider answers now. */
    bool is_provided;
    struct sample *samples;
    size_t count;
    /* The seconds since the refresh before; 0 for the first. */
    double elapsed;
};

/* Finds the cgroup of an id that the kernel programs have; false as long as the snapshot lacks it. */
bool find_cgroup(const bw_cgroups *cgroups, uint64_t id, bw_cgroup *cgroup);

/* Prints the `lines` cgroups that are the most active. */
void print_table(const struct refresh *refresh, size_t lines, bool clears_screen);

/* Writes Netdata's external plugin protocol: charts of new cgroups, and the counts of all. */
void write_netdata(const struct refresh *refresh, int update_every);

/* Tells Netdata that a cgroup is gone. */
void write_obsolete(struct sample *sample);

#endif
