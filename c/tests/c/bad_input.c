/* What a program may get wrong is BW_E_INVALID and a sentence. */
#include "check.h"

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
    bad.method = UINT32_MAX;
    FAILS(BW_E_INVALID, bw_client_new(NULL, &bad, NULL, &client, &error));
    bad = contract;
    bad.flags = 2;
    FAILS(BW_E_INVALID, bw_client_new(NULL, &bad, NULL, &client, &error));
    FAILS(BW_E_INVALID, bw_client_new("\xff", &contract, NULL, &client, &error));

    bw_client_config config, wrong;
    bw_client_config_init(&config);
    bw_client_config_init(NULL);
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

    FAILS(BW_E_INVALID, bw_client_call(NULL, "a", 1, 0, &answer, &error));
    FAILS(BW_E_INVALID, bw_client_refresh(NULL, NULL, &error));
    FAILS(BW_E_INVALID, bw_cache_refresh(NULL, 0, NULL, &error));
    FAILS(BW_E_INVALID, bw_cgroups_refresh(NULL, 0, NULL, &error));
    FAILS(BW_E_INVALID, bw_cgroups_root(NULL, 0, NULL, &error));
    FAILS(BW_E_INVALID, bw_cgroups_label(NULL, 0, 0, NULL, NULL, &error));
    FAILS(BW_E_INVALID, bw_apps_label(NULL, 0, 0, NULL, NULL, &error));
    bw_text name = { "a.b c", 5 };
    char id[6];
    FAILS(BW_E_INVALID, bw_cgroup_chart_id(name, NULL, 6, &error));
    FAILS(BW_E_INVALID, bw_cgroup_chart_id(name, id, 5, &error));
    CHECK(bw_cgroup_chart_id(name, id, 6, &error) == BW_OK && strcmp(id, "a-b_c") == 0);
    FAILS(BW_E_INVALID, bw_publisher_publish(NULL, "a", 1, NULL, &error));
    FAILS(BW_E_INVALID, bw_server_start(NULL, NULL, &error));
    CHECK(bw_canceller_cancel(NULL) == BW_E_INVALID);
    CHECK(bw_answer_write(NULL, "a", 1) == BW_E_INVALID);
    CHECK(bw_payload_bytes(NULL).len == 0 && bw_cgroups_count(NULL) == 0);
    CHECK(!bw_caller_is_abandoned(NULL) && bw_caller_pid(NULL) == 0 && bw_caller_uid(NULL) == UINT32_MAX);
    bw_client_free(NULL);
    bw_cache_free(NULL);
    bw_cgroups_free(NULL);
    bw_publisher_free(NULL);
    bw_server_builder_free(NULL);
    bw_server_stop(NULL);
    bw_payload_free(NULL);
    bw_canceller_free(NULL);

    OK(bw_client_new("/nowhere/at/all", &contract, &config, &client, &error));
    FAILS(BW_E_INVALID, bw_client_call(client, NULL, 1, 0, &answer, &error));
    FAILS(BW_E_INVALID, bw_client_call_payload(client, NULL, 0, NULL, &error));
    bw_client_stats stats = { .size = 1 };
    FAILS(BW_E_INVALID, bw_client_get_stats(client, &stats, &error));
    CHECK(bw_client_call(client, "a", 1, 0, &answer, NULL) == BW_E_ABSENT);
    /* An error of a smaller program is left alone. */
    bw_error small = BW_ERROR_INIT;
    small.size = 16;
    small.code = 77;
    CHECK(bw_client_call(client, "a", 1, 0, &answer, &small) == BW_E_ABSENT && small.code == 77);
    bw_client_free(client);

    bw_server_builder *builder = NULL;
    bw_server_config server;
    bw_server_config_init(&server);
    server.admit = 9;
    FAILS(BW_E_INVALID, bw_server_new(NULL, &server, &builder, &error));
    bw_server_config_init(&server);
    OK(bw_server_new(NULL, &server, &builder, &error));
    FAILS(BW_E_INVALID, bw_server_serve(builder, &contract, NULL, NULL, NULL, &error));
    FAILS(BW_E_INVALID, bw_server_publish(builder, &contract, NULL, &error));
    bw_server_builder_free(builder);
    return 0;
}
