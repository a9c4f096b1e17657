/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "output.h"

#include <inttypes.h>
#include <stdlib.h>

/* The columns of a name. */
#define NAME 40

static const char *const orchestrators[] = { "-", "systemd", "docker", "kubernetes", "vm", "lxc", "podman", "nspawn" };

static uint64_t change(const struct sample *sample, enum count count)
{
    /* A cgroup that was dropped, and came back, counts from 0. */
    uint64_t now = sample->now[count], before = sample->before[count];
    return now >= before ? now - before : now;
}

static int by_activity(const void *left, const void *right)
{
    const struct sample *a = *(const struct sample *const *)left, *b = *(const struct sample *const *)right;
    for (int count = 0; count < COUNTS; count++) {
        uint64_t x = change(a, count), y = change(b, count);
        if (x != y)
            return x < y ? 1 : -1;
    }
    return (a->id > b->id) - (a->id < b->id);
}

/* Prints at most NAME characters of UTF-8, and fills the column. */
static void print_name(bw_text name)
{
    size_t length = 0, columns = 0;
    while (length < name.len) {
        if (((unsigned char)name.data[length] & 0xc0) != 0x80 && columns++ == NAME)
            break;
        length++;
    }
    columns = columns > NAME ? NAME : columns;
    printf("%.*s%*s", (int)length, name.data, (int)(NAME - columns), "");
}

/* Prints bytes a second in the largest unit that keeps it readable. */
static void print_bytes(double bytes)
{
    const char *unit = " KMGTP";
    while (bytes >= 9999.5 && unit[1]) {
        bytes /= 1024;
        unit++;
    }
    printf(" %8.0f%c", bytes, *unit);
}

static void print_line(const struct refresh *refresh, const struct sample *sample)
{
    bw_cgroup cgroup;
    double rate[COUNTS];
    for (int count = 0; count < COUNTS; count++)
        rate[count] = (double)change(sample, count) / refresh->elapsed;
    if (find_cgroup(refresh->cgroups, sample->id, &cgroup)) {
        print_name(cgroup.name);
        size_t known = sizeof orchestrators / sizeof *orchestrators;
        printf(" %-10s", cgroup.orchestrator < known ? orchestrators[cgroup.orchestrator] : "?");
    } else {
        printf("id %-*" PRIu64 " %-10s", NAME - 3, sample->id, "?");
    }
    printf(" %6.1f %9.0f %9.0f", rate[CPU_NS] / 1e7, rate[SWITCHES], rate[FAULTS]);
    for (int count = BYTES_READ; count < COUNTS; count++)
        print_bytes(rate[count]);
    putchar('\n');
}

void print_table(const struct refresh *refresh, size_t lines, bool clears_screen)
{
    if (refresh->elapsed <= 0)
        return;
    const struct sample **order = malloc((refresh->count + 1) * sizeof *order);
    if (!order)
        return;
    for (size_t i = 0; i < refresh->count; i++)
        order[i] = &refresh->samples[i];
    qsort(order, refresh->count, sizeof *order, by_activity);
    if (clears_screen)
        fputs("\033[H\033[2J", stdout);
    printf("%zu cgroups active so far, %zu in the snapshot%s\n", refresh->count, bw_cgroups_count(refresh->cgroups),
           refresh->is_provided ? "" : " (no provider: it may be old)");
    printf("%-*s %-10s %6s %9s %9s %9s %9s %9s %9s\n", NAME, "CGROUP", "BY", "CPU %", "SWITCH/s", "FAULT/s", "READ/s",
           "WRITE/s", "RECV/s", "SEND/s");
    for (size_t i = 0; i < refresh->count && i < lines; i++)
        print_line(refresh, order[i]);
    free(order);
}
