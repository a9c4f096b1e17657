/* The services of processes and cgroups, which another process provides: see programs.rs. */
#include "check.h"

static void copy(char *to, size_t size, bw_text text)
{
    CHECK(text.len < size);
    memcpy(to, text.data, text.len);
    to[text.len] = 0;
}

static void snapshot(void)
{
    bw_error error = BW_ERROR_INIT;
    bw_cgroups *cgroups = NULL;
    int outcome = -1;
    OK(bw_cgroups_new(NULL, NULL, &cgroups, &error));
    OK(bw_cgroups_refresh(cgroups, 10 * SECOND, &outcome, &error));
    CHECK(outcome == BW_CHANGED && bw_cgroups_count(cgroups) == 1000);
    size_t found = 0;
    bw_cgroup cgroup, same;
    while (bw_cgroups_at(cgroups, found, &cgroup, NULL) == BW_OK) {
        char path[4097], name[256];
        copy(path, sizeof path, cgroup.path);
        copy(name, sizeof name, cgroup.name);
        CHECK(cgroup.name_hash == bw_cgroup_name_hash(name));
        OK(bw_cgroups_by_id(cgroups, cgroup.id, &same, &error));
        CHECK(same.path.data == cgroup.path.data && same.orchestrator == cgroup.orchestrator);
        OK(bw_cgroups_by_path(cgroups, path, &same, &error));
        CHECK(same.id == cgroup.id && same.options == cgroup.options);
        OK(bw_cgroups_by_name(cgroups, name, &same, &error));
        CHECK(same.name_hash == cgroup.name_hash && same.enabled <= 1);
        bw_text root, label, value;
        OK(bw_cgroups_root(cgroups, cgroup.id, &root, &error));
        CHECK(root.len == 14 && memcmp(root.data, "/sys/fs/cgroup", 14) == 0);
        CHECK(cgroup.labels == (cgroup.id == 7));
        if (cgroup.labels != 0) {
            CHECK(cgroup.options & BW_CGROUP_PENDING);
            OK(bw_cgroups_label(cgroups, cgroup.id, 0, &label, &value, &error));
            CHECK(label.len == 5 && memcmp(label.data, "image", 5) == 0);
            CHECK(value.len == 3 && memcmp(value.data, "w:1", 3) == 0);
        }
        FAILS(BW_E_ABSENT, bw_cgroups_label(cgroups, cgroup.id, 1, &label, &value, &error));
        found++;
    }
    CHECK(found == 1000);
    FAILS(BW_E_ABSENT, bw_cgroups_by_id(cgroups, 0, &same, &error));
    bw_cgroups_free(cgroups);

    /* In an event loop: nothing changes. */
    bw_client_config config;
    bw_client_config_init(&config);
    config.doorbell = BW_DOORBELL_EVENTFD;
    OK(bw_cgroups_new(NULL, &config, &cgroups, &error));
    OK(bw_cgroups_refresh(cgroups, 10 * SECOND, &outcome, &error));
    int is_ready = 1, fd = -1;
    uint64_t due = 0;
    while (is_ready) {
        OK(bw_cgroups_refresh(cgroups, 0, &outcome, &error));
        OK(bw_cgroups_arm(cgroups, &is_ready, &error));
    }
    OK(bw_cgroups_fd(cgroups, &fd, &due, &error));
    CHECK(fd >= 0 && due > 0);
    bw_cgroups_free(cgroups);
}

int main(void)
{
    bw_error error = BW_ERROR_INIT;
    snapshot();

    bw_apps *apps = NULL;
    bw_app found[3];
    const uint32_t pids[3] = { 1, 2, 3 };
    OK(bw_apps_new(NULL, NULL, &apps, &error));
    OK(bw_apps_find(apps, pids, 3, found, &error));
    CHECK(found[0].outcome == BW_LOOKUP_KNOWN && found[0].ppid == 7 && found[0].uid == 8);
    CHECK(found[0].started_ns == 80000000 && found[0].orchestrator == 1);
    CHECK(found[0].comm.len == 4 && memcmp(found[0].comm.data, "init", 4) == 0);
    CHECK(found[0].cgroup.len == 11 && memcmp(found[0].cgroup.data, "/init.scope", 11) == 0);
    CHECK(found[0].cgroup_name.len == 4 && memcmp(found[0].cgroup_name.data, "Init", 4) == 0);
    CHECK(found[0].labels == 1 && found[0].pending == 1 && found[1].pending == 0);
    bw_text name, value;
    OK(bw_apps_label(apps, 0, 0, &name, &value, &error));
    CHECK(name.len == 4 && memcmp(name.data, "unit", 4) == 0 && value.len == 1);
    FAILS(BW_E_ABSENT, bw_apps_label(apps, 0, 1, &name, &value, &error));
    FAILS(BW_E_ABSENT, bw_apps_label(apps, 1, 0, &name, &value, &error));
    CHECK(found[1].outcome == BW_LOOKUP_RETRY_LATER && found[1].comm.len == 0);
    CHECK(found[2].outcome == BW_LOOKUP_UNKNOWN);
    OK(bw_apps_find(apps, NULL, 0, NULL, &error));
    FAILS(BW_E_INVALID, bw_apps_find(apps, NULL, 1, found, &error));
    bw_apps_free(apps);
    bw_apps_free(NULL);

    bw_cgroup_lookup *lookup = NULL;
    bw_cgroup_details details[2];
    const char *paths[2] = { "/known", "/unknown" };
    OK(bw_cgroup_lookup_new(NULL, NULL, &lookup, &error));
    OK(bw_cgroup_lookup_find(lookup, paths, 2, details, &error));
    CHECK(details[0].outcome == BW_LOOKUP_KNOWN && details[0].id == 9 && details[0].labels == 1);
    CHECK(details[0].options == BW_CGROUP_UNIFIED && details[0].enabled == 1 && details[0].orchestrator == 2);
    CHECK(details[1].outcome == BW_LOOKUP_UNKNOWN && details[1].labels == 0);
    OK(bw_cgroup_lookup_label(lookup, 0, 0, &name, &value, &error));
    CHECK(name.len == 4 && memcmp(name.data, "unit", 4) == 0 && value.len == 3 && memcmp(value.data, "x.s", 3) == 0);
    FAILS(BW_E_ABSENT, bw_cgroup_lookup_label(lookup, 0, 1, &name, &value, &error));
    FAILS(BW_E_ABSENT, bw_cgroup_lookup_label(lookup, 1, 0, &name, &value, &error));
    bw_cgroup_lookup_free(lookup);
    bw_cgroup_lookup_free(NULL);
    return 0;
}
