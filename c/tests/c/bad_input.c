/* What a program may get wrong is BW_E_INVALID and a sentence. */
#include "check.h"

static void fill(void *bytes, size_t len, void *user)
{
    (void)bytes;
    (void)len;
    (void)user;
}

int main(void)
{
    bw_error error = BW_ERROR_INIT;
    bw_contract contract = BW_CONTRACT("good", 1), bad = contract;
    bw_client *client = NULL;
    bw_bytes answer;

    FAILS(BW_E_INVALID, bw_client_new(NULL, NULL, NULL, &client, &error));
    FAILS(BW_E_INVALID, bw_client_new(NULL, &contract, NULL, NULL, &error));
    bad.size = 8;
    FAILS(BW_E_INVALID, bw_client_new(NULL, &bad, NULL, &client, &error));
    CHECK(strstr(error.message, "bw_contract.size") != NULL);
    const char *names[] = { NULL, "", "Has Spaces", "../up", "\xff\xfe", "0123456789012345678901234567890123456789012345678901234567890123" };
    for (size_t at = 0; at < sizeof names / sizeof *names; at++) {
        bad = contract;
        bad.service = names[at];
        FAILS(BW_E_INVALID, bw_client_new(NULL, &bad, NULL, &client, &error));
    }
    bad = contract;
    bad.version = UINT32_MAX;
    FAILS(BW_E_INVALID, bw_client_new(NULL, &bad, NULL, &client, &error));
    bad = contract;
    bad.flags = 2;
    FAILS(BW_E_INVALID, bw_client_new(NULL, &bad, NULL, &client, &error));
    FAILS(BW_E_INVALID, bw_client_new("\xff", &contract, NULL, &client, &error));

    bw_client_config config, wrong;
    bw_client_config_init(&config);
    wrong = config;
    wrong.size = 0;
    FAILS(BW_E_INVALID, bw_client_new(NULL, &contract, &wrong, &client, &error));
    wrong = config;
    wrong.lane_size = 5000;
    FAILS(BW_E_INVALID, bw_client_new(NULL, &contract, &wrong, &client, &error));
    wrong = config;
    wrong.doorbell = 9;
    FAILS(BW_E_INVALID, bw_client_new(NULL, &contract, &wrong, &client, &error));
    wrong = config;
    wrong.backpressure = 9;
    FAILS(BW_E_INVALID, bw_client_new(NULL, &contract, &wrong, &client, &error));
    wrong = config;
    wrong.trusted_len = 1;
    FAILS(BW_E_INVALID, bw_client_new(NULL, &contract, &wrong, &client, &error));
    static const uint8_t zeroes[16];
    wrong = config;
    wrong.token = zeroes;
    FAILS(BW_E_INVALID, bw_client_new(NULL, &contract, &wrong, &client, &error));
    CHECK(client == NULL);

    bw_text name = { "a.b c", 5 };
    char id[6];
    FAILS(BW_E_INVALID, bw_cgroup_chart_id(name, NULL, 6, &error));
    FAILS(BW_E_INVALID, bw_cgroup_chart_id(name, id, 5, &error));
    CHECK(bw_cgroup_chart_id(name, id, 6, &error) == BW_OK && strcmp(id, "a-b_c") == 0);

    OK(bw_client_new("/nowhere/at/all", &contract, &config, &client, &error));
    FAILS(BW_E_INVALID, bw_client_call(client, NULL, 1, 0, &answer, &error));
    FAILS(BW_E_INVALID, bw_client_call_payload(client, NULL, 0, NULL, &error));
    /* Longer than memory can be: an error, before anything is read or allocated. */
    FAILS(BW_E_INVALID, bw_client_call(client, "a", SIZE_MAX, 0, &answer, &error));
    FAILS(BW_E_INVALID, bw_client_call_batch(client, NULL, SIZE_MAX, &error));
    FAILS(BW_E_INVALID, bw_client_call_batch(client, NULL, (size_t)1 << 45, &error));
    bw_bytes item = { "a", SIZE_MAX };
    FAILS(BW_E_INVALID, bw_client_call_batch(client, &item, SIZE_MAX, &error));
    FAILS(BW_E_INVALID, bw_client_call_batch(client, &item, 1, &error));
    FAILS(BW_E_INVALID, bw_client_submit(client, "a", SIZE_MAX, NULL, &error));
    bw_apps *apps = NULL;
    bw_cgroup_lookup *lookup = NULL;
    bw_app app;
    bw_cgroup_details details;
    uint32_t pid = 1;
    const char *path = "/";
    OK(bw_apps_new(NULL, NULL, &apps, &error));
    OK(bw_cgroup_lookup_new(NULL, NULL, &lookup, &error));
    FAILS(BW_E_INVALID, bw_apps_find(apps, NULL, 1, &app, &error));
    FAILS(BW_E_INVALID, bw_apps_find(apps, &pid, SIZE_MAX, &app, &error));
    FAILS(BW_E_INVALID, bw_apps_find(apps, &pid, 1, NULL, &error));
    FAILS(BW_E_INVALID, bw_cgroup_lookup_find(lookup, NULL, 1, &details, &error));
    FAILS(BW_E_INVALID, bw_cgroup_lookup_find(lookup, &path, SIZE_MAX, &details, &error));
    FAILS(BW_E_INVALID, bw_cgroup_lookup_find(lookup, &path, 1, NULL, &error));
    bw_apps_free(apps);
    bw_cgroup_lookup_free(lookup);
    wrong = config;
    wrong.trusted = &pid;
    wrong.trusted_len = SIZE_MAX;
    FAILS(BW_E_INVALID, bw_client_new(NULL, &contract, &wrong, &client, &error));
    bw_payload *payload = NULL;
    FAILS(BW_E_INVALID, bw_payload_build(1, NULL, NULL, &payload, &error));
    FAILS(BW_E_SYSTEM, bw_payload_build((size_t)1 << 60, fill, NULL, &payload, &error));
    bw_client_stats stats = { .size = 1 };
    FAILS(BW_E_INVALID, bw_client_get_stats(client, &stats, &error));
    CHECK(bw_client_call(client, "a", 1, 0, &answer, NULL) == BW_E_ABSENT);
    /* An error of a smaller program is left alone. */
    bw_error small = BW_ERROR_INIT;
    small.size = 16;
    small.code = 77;
    CHECK(bw_client_call(client, "a", 1, 0, &answer, &small) == BW_E_ABSENT && small.code == 77);
    bw_client_free(client);

    /* What is left when a server has stopped. */
    bw_server_builder *builder = NULL;
    bw_server *stopped = NULL;
    bw_publisher *publisher = NULL;
    bw_event_publisher *events = NULL;
    bw_contract other = BW_CONTRACT("other", 1);
    OK(bw_server_builder_new(NULL, NULL, &builder, &error));
    OK(bw_server_builder_publish(builder, &contract, &publisher, &error));
    OK(bw_server_builder_events(builder, &other, 4096, &events, &error));
    OK(bw_server_builder_start(builder, &stopped, &error));
    bw_server_stop(stopped);
    OK(bw_publisher_publish(publisher, "a", 1, NULL, &error));
    FAILS(BW_E_INVALID, bw_publisher_publish(publisher, "a", SIZE_MAX, NULL, &error));
    FAILS(BW_E_SYSTEM, bw_publisher_publish_with(publisher, (size_t)1 << 60, fill, NULL, NULL, &error));
    OK(bw_event_publisher_send(events, "a", 1, NULL, &error));
    FAILS(BW_E_INVALID, bw_event_publisher_send(events, "a", SIZE_MAX, NULL, &error));
    bw_publisher_free(publisher);
    bw_event_publisher_free(events);

    bw_server_config server;
    bw_server_config_init(&server);
    server.admit = 9;
    FAILS(BW_E_INVALID, bw_server_builder_new(NULL, &server, &builder, &error));
    bw_server_config_init(&server);
    server.workers = SIZE_MAX;
    FAILS(BW_E_INVALID, bw_server_builder_new(NULL, &server, &builder, &error));
    bw_server_config_init(&server);
    OK(bw_server_builder_new(NULL, &server, &builder, &error));
    FAILS(BW_E_INVALID, bw_server_builder_serve(builder, &contract, NULL, NULL, NULL, &error));
    FAILS(BW_E_INVALID, bw_server_builder_publish(builder, &contract, NULL, &error));
    bw_server_builder_free(builder);
    return 0;
}
