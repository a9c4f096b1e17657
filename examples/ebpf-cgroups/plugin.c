/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* What each cgroup of this machine does, counted in the kernel and named by the service cgroups-snapshot. */
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <pwd.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "output.h"

struct options {
    double interval, keep;
    unsigned long times;
    size_t lines;
    uint32_t max_cgroups;
    bool is_netdata, measures_cost;
    const char *run_dir;
    uint32_t trusted[16];
    size_t trusted_count;
};

static const char usage[] =
    "usage: ebpf-cgroups [OPTION]... [SECONDS]\n"
    "Shows what each cgroup does; `bellwire provide cgroups` gives their names.\n\n"
    "  --netdata          write the protocol of Netdata's external plugins; SECONDS: its update_every\n"
    "  --interval SECONDS between two refreshes (1)\n"
    "  --times N          end after N refreshes\n"
    "  --keep SECONDS     how long to keep a cgroup that is gone after its last event (60)\n"
    "  --lines N          the N most active cgroups only (30)\n"
    "  --max-cgroups N    the most that are counted at once (16384): 64 bytes each, for each CPU\n"
    "  --run-dir DIR      where the provider listens (BELLWIRE_RUN_DIR)\n"
    "  --trust USER       accept a provider of this user, besides one's own and root; up to 16 times\n"
    "  --cost             at the end, write to stderr what counting and showing took\n";

static bool refuse(const char *what, const char *value)
{
    fprintf(stderr, "%s: %s\n\n%s", what, value, usage);
    return false;
}

static bool parse_number(const char *text, double least, double most, double *number)
{
    char *end;
    *number = strtod(text, &end);
    if (end != text && !*end && *number >= least && *number <= most)
        return true;
    return refuse("not a number that is possible here", text);
}

static bool parse_user(const char *text, struct options *options)
{
    double number;
    const struct passwd *user = getpwnam(text);
    if (options->trusted_count == sizeof options->trusted / sizeof *options->trusted)
        return refuse("too many users", text);
    if (!user && !parse_number(text, 0, UINT32_MAX, &number))
        return false;
    options->trusted[options->trusted_count++] = user ? user->pw_uid : (uint32_t)number;
    return true;
}

static bool parse(int argc, char **argv, struct options *options)
{
    enum { NETDATA, INTERVAL, KEEP, TIMES, LINES, MAX_CGROUPS, RUN_DIR, TRUST, COST, HELP };
    static const struct option known[] = {
        { "netdata", no_argument, NULL, NETDATA },       { "interval", required_argument, NULL, INTERVAL },
        { "times", required_argument, NULL, TIMES },     { "lines", required_argument, NULL, LINES },
        { "run-dir", required_argument, NULL, RUN_DIR }, { "max-cgroups", required_argument, NULL, MAX_CGROUPS },
        { "trust", required_argument, NULL, TRUST },     { "cost", no_argument, NULL, COST },
        { "keep", required_argument, NULL, KEEP },       { "help", no_argument, NULL, HELP },
        { 0 },
    };
    double number = 0;
    bool is_right = true;
    for (int option; is_right && (option = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        switch (option) {
        case NETDATA: options->is_netdata = true; break;
        case COST: options->measures_cost = true; break;
        case RUN_DIR: options->run_dir = optarg; break;
        case TRUST: is_right = parse_user(optarg, options); break;
        case INTERVAL: is_right = parse_number(optarg, 0.01, 86400, &options->interval); break;
        case KEEP: is_right = parse_number(optarg, 0, 1e9, &options->keep); break;
        case TIMES: is_right = parse_number(optarg, 1, 1e9, &number); options->times = (unsigned long)number; break;
        case LINES: is_right = parse_number(optarg, 1, 1e6, &number); options->lines = (size_t)number; break;
        case MAX_CGROUPS: is_right = parse_number(optarg, 1, 1e6, &number); options->max_cgroups = (uint32_t)number; break;
        case HELP: fputs(usage, stdout); exit(0);
        default: return false;
        }
    }
    if (is_right && optind < argc)
        is_right = parse_number(argv[optind++], 0.01, 86400, &options->interval);
    return is_right && (optind == argc || refuse("one argument too many", argv[optind]));
}

static double seconds(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

bool find_cgroup(const bw_cgroups *cgroups, uint64_t id, bw_cgroup *cgroup)
{
    /* On a machine with both hierarchies, ids of the other one mean other cgroups. */
    return bw_cgroups_by_id(cgroups, id, cgroup, NULL) == BW_OK && cgroup->options & BW_CGROUP_UNIFIED &&
           !(cgroup->options & BW_CGROUP_SECONDARY);
}

static bw_cgroups *open_snapshot(const struct options *options)
{
    bw_error error = BW_ERROR_INIT;
    bw_client_config config;
    bw_cgroups *cgroups;
    bw_client_config_init(&config);
    config.trusted = options->trusted;
    config.trusted_len = options->trusted_count;
    if (bw_cgroups_new(options->run_dir, &config, &cgroups, &error) == BW_OK)
        return cgroups;
    fprintf(stderr, "%s\n", error.message);
    return NULL;
}

/* Takes a newer snapshot, and says when the provider comes and goes: what was there stays meanwhile. */
static void refresh_snapshot(struct refresh *refresh, double interval)
{
    static char said[sizeof((bw_error *)0)->message];
    static bool was_asked;
    bw_error error = BW_ERROR_INIT;
    int outcome = BW_UNAVAILABLE;
    int code = bw_cgroups_refresh(refresh->cgroups, (uint64_t)(interval / 4 * 1e9), &outcome, &error);
    bool is_provided = code == BW_OK && outcome != BW_UNAVAILABLE;
    /* A provider that is refused, or sends what is malformed, is mentioned once. */
    if (code != BW_OK && strcmp(said, error.message) != 0)
        fprintf(stderr, "cgroups-snapshot: %s\n", strcpy(said, error.message));
    if (is_provided != refresh->is_provided || !was_asked)
        fprintf(stderr, "cgroups-snapshot: %s\n", is_provided ? "provided" : "no provider; the last snapshot stays");
    refresh->is_provided = is_provided;
    was_asked = true;
}

/* Drops what is gone: else the map would fill up. Without a provider nobody knows what is gone, or only new. */
static void forget_gone(const struct options *options, const struct refresh *refresh, double now)
{
    bw_cgroup cgroup;
    if (!refresh->is_provided && refresh->count < options->max_cgroups / 4 * 3)
        return;
    for (struct sample *sample = refresh->samples; sample < refresh->samples + refresh->count; sample++) {
        if (now - sample->changed < options->keep || find_cgroup(refresh->cgroups, sample->id, &cgroup))
            continue;
        write_obsolete(sample);
        collector_forget(refresh->collector, sample);
    }
}

/* Reads and shows the counts until a signal comes, the reader of the output goes, or it was done often enough. */
static int run(const struct options *options, struct refresh *refresh, const sigset_t *ends)
{
    double last = 0, due = seconds(CLOCK_MONOTONIC);
    uint64_t lost = 0;
    for (unsigned long done = 0; !options->times || done < options->times; ) {
        double now = seconds(CLOCK_MONOTONIC);
        if (last > 0) {
            double left = fmax(due - now, 0);
            struct timespec wait = { (time_t)left, (long)((left - floor(left)) * 1e9) };
            if (sigtimedwait(ends, NULL, &wait) > 0)
                return 0;
            now = seconds(CLOCK_MONOTONIC);
        }
        due = fmax(due + options->interval, now);
        refresh_snapshot(refresh, options->interval);
        now = seconds(CLOCK_MONOTONIC);
        long count = collector_read(refresh->collector, now, &refresh->samples);
        if (count < 0) {
            fprintf(stderr, "cannot read the counts: %s\n", strerror((int)-count));
            return 1;
        }
        refresh->count = (size_t)count;
        refresh->elapsed = last > 0 ? now - last : 0;
        if (options->is_netdata)
            write_netdata(refresh, (int)fmax(options->interval, 1));
        else
            print_table(refresh, options->lines, isatty(STDOUT_FILENO));
        forget_gone(options, refresh, now);
        done += last > 0;
        last = now;
        if (fflush(stdout))
            return errno == EPIPE ? 0 : 1;
        if (collector_lost(refresh->collector) != lost) {
            lost = collector_lost(refresh->collector);
            fprintf(stderr, "%llu events were not counted: raise --max-cgroups\n", (unsigned long long)lost);
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct options options = { .interval = 1, .keep = 60, .lines = 30, .max_cgroups = 16384 };
    struct refresh refresh = { 0 };
    sigset_t ends;
    if (!parse(argc, argv, &options))
        return 2;
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    sigprocmask(SIG_BLOCK, &ends, NULL);
    signal(SIGPIPE, SIG_IGN);
    refresh.cgroups = open_snapshot(&options);
    refresh.collector = refresh.cgroups ? collector_open(options.max_cgroups, options.measures_cost) : NULL;
    if (!refresh.collector) {
        /* Netdata does not start it again then. */
        if (options.is_netdata)
            puts("DISABLE");
        bw_cgroups_free(refresh.cgroups);
        return 1;
    }
    double wall = seconds(CLOCK_MONOTONIC), own = seconds(CLOCK_PROCESS_CPUTIME_ID);
    int status = run(&options, &refresh, &ends);
    if (options.measures_cost) {
        wall = seconds(CLOCK_MONOTONIC) - wall;
        own = seconds(CLOCK_PROCESS_CPUTIME_ID) - own;
        collector_print_cost(refresh.collector, wall, stderr);
        fprintf(stderr, "%-20s %38.3f\n", "the plugin itself", own / wall * 100);
    }
    collector_close(refresh.collector);
    bw_cgroups_free(refresh.cgroups);
    return status;
}
