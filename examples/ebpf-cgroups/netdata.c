/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Netdata's text protocol for external plugins: https://learn.netdata.cloud/docs/developer-and-contributor-corner/external-plugins */
#include "output.h"

#include <inttypes.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

struct dimension {
    enum count count;
    const char *name;
    int multiplier, divisor;
};

static const struct chart {
    const char *id, *title, *units, *family, *type;
    struct dimension dimensions[3];
} charts[] = {
    { "cpu", "CPU time", "percentage", "cpu", "area", { { CPU_NS, "used", 1, 10000000 } } },
    { "switches", "Context switches", "switches/s", "cpu", "line", { { SWITCHES, "switches", 1, 1 } } },
    { "faults", "Page faults", "faults/s", "mem", "line", { { FAULTS, "faults", 1, 1 } } },
    { "io", "Block I/O", "KiB/s", "disk", "area", { { BYTES_READ, "read", 1, 1024 }, { BYTES_WRITTEN, "written", -1, 1024 } } },
    { "tcp", "TCP payload", "kilobits/s", "net", "area", { { TCP_RECEIVED, "received", 8, 1000 }, { TCP_SENT, "sent", -8, 1000 } } },
};
#define CHARTS (sizeof charts / sizeof *charts)

/* The chart ids in use: names are not unique. */
static void *ids;

static int by_text(const void *left, const void *right)
{
    return strcmp(left, right);
}

/* An id for the charts of a cgroup: with the cgroup's id behind it where another has the same. */
static char *take_id(const bw_cgroup *cgroup)
{
    size_t room = cgroup->name.len + sizeof "_18446744073709551615";
    char *id = malloc(room);
    if (!id || bw_cgroup_chart_id(cgroup->name, id, room, NULL) != BW_OK)
        goto failed;
    if (tfind(id, &ids, by_text)) {
        size_t length = strlen(id);
        snprintf(id + length, room - length, "_%" PRIu64, cgroup->id);
    }
    if (tsearch(id, &ids, by_text))
        return id;
failed:
    free(id);
    return NULL;
}

/* Whether a cgroup gets charts: their ids stay, so its name has to be final. */
static bool has_charts(const bw_cgroup *cgroup)
{
    return cgroup->enabled && !(cgroup->options & BW_CGROUP_PENDING);
}

/* A text in quotes: without quotes and backslashes of its own. */
static void write_quoted(bw_text text)
{
    putchar('\'');
    for (size_t i = 0; i < text.len; i++)
        putchar(text.data[i] == '\'' || text.data[i] == '\\' ? '_' : text.data[i]);
    putchar('\'');
}

static void write_chart(const struct sample *sample, const struct chart *chart, int update_every, const char *options)
{
    printf("CHART 'cgroup_%s.ebpf_%s' '' '%s' '%s' '%s' 'cgroup.ebpf_%s' %s 43000 %d '%s' 'ebpf-cgroups.plugin' 'counts'\n",
           sample->chart, chart->id, chart->title, chart->units, chart->family, chart->id, chart->type, update_every, options);
}

static void write_charts(const struct refresh *refresh, const struct sample *sample, const bw_cgroup *cgroup, int update_every)
{
    for (const struct chart *chart = charts; chart < charts + CHARTS; chart++) {
        if (!collector_has(refresh->collector, chart->dimensions[0].count))
            continue;
        write_chart(sample, chart, update_every, "");
        fputs("CLABEL 'cgroup_name' ", stdout);
        write_quoted(cgroup->name);
        fputs(" 1\nCLABEL 'cgroup_path' ", stdout);
        write_quoted(cgroup->path);
        fputs(" 1\nCLABEL_COMMIT\n", stdout);
        for (const struct dimension *dimension = chart->dimensions; dimension->name; dimension++)
            printf("DIMENSION '%s' '' incremental %d %d\n", dimension->name, dimension->multiplier, dimension->divisor);
    }
}

static void write_counts(const struct refresh *refresh, const struct sample *sample, bool is_new)
{
    uint64_t microseconds = is_new ? 0 : (uint64_t)(refresh->elapsed * 1e6);
    for (const struct chart *chart = charts; chart < charts + CHARTS; chart++) {
        if (!collector_has(refresh->collector, chart->dimensions[0].count))
            continue;
        printf("BEGIN 'cgroup_%s.ebpf_%s' %" PRIu64 "\n", sample->chart, chart->id, microseconds);
        for (const struct dimension *dimension = chart->dimensions; dimension->name; dimension++)
            printf("SET '%s' = %" PRIu64 "\n", dimension->name, sample->now[dimension->count]);
        fputs("END\n", stdout);
    }
}

void write_netdata(const struct refresh *refresh, int update_every)
{
    for (struct sample *sample = refresh->samples; sample < refresh->samples + refresh->count; sample++) {
        bw_cgroup cgroup;
        bool is_new = !sample->chart;
        if (is_new) {
            if (!find_cgroup(refresh->cgroups, sample->id, &cgroup) || !has_charts(&cgroup) || !(sample->chart = take_id(&cgroup)))
                continue;
            write_charts(refresh, sample, &cgroup, update_every);
        }
        write_counts(refresh, sample, is_new);
    }
}

void write_obsolete(struct sample *sample)
{
    if (!sample->chart)
        return;
    for (const struct chart *chart = charts; chart < charts + CHARTS; chart++)
        write_chart(sample, chart, 1, "obsolete");
    tdelete(sample->chart, &ids, by_text);
    free(sample->chart);
    sample->chart = NULL;
}
