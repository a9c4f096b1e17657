/* Programs of another header than the library's: their structs are shorter or longer. */
#include "check.h"

/* Structs of a newer header. */
struct newer_contract { bw_contract known; uint64_t added[2]; };
struct newer_client_config { bw_client_config known; uint64_t added[2]; };
struct newer_server_config { bw_server_config known; uint64_t added[2]; };
struct newer_client_stats { bw_client_stats known; uint64_t added[2], behind; };
struct newer_server_stats { bw_server_stats known; uint64_t added[2], behind; };
struct newer_error { bw_error known; uint64_t added[2], behind; };

#define UNTOUCHED 0xa5

/* Makes all of a struct something else than 0, except for its size. */
#define TAINT(object, len)                                   \
    do {                                                     \
        memset(&(object), UNTOUCHED, sizeof(object));        \
        *(size_t *)(void *)&(object) = (len);                \
    } while (0)

static int is_all(const void *bytes, size_t len, unsigned char value)
{
    for (size_t at = 0; at < len; at++)
        if (((const unsigned char *)bytes)[at] != value)
            return 0;
    return 1;
}

/* Checks a struct of counters that has two more than the library's and one number behind it. */
#define IS_FILLED(stats)                                                                  \
    (stats.known.size == offsetof(__typeof__(stats), behind) && is_all(stats.added, sizeof stats.added, 0) \
     && is_all(&stats.behind, sizeof stats.behind, UNTOUCHED))

static int answer_it(void *user, const bw_caller *caller, const void *request, size_t len, bw_answer *answer)
{
    (void)user;
    (void)caller;
    return bw_answer_write(answer, request, len);
}

int main(void)
{
    bw_error error = BW_ERROR_INIT;
    bw_server_builder *builder = NULL;
    bw_server *server = NULL;
    bw_client *client = NULL;
    bw_bytes answer;

    struct newer_contract contract = { BW_CONTRACT("sizes", 1), { 0 } };
    struct newer_client_config client_config = { 0 };
    struct newer_server_config server_config = { 0 };
    contract.known.size = sizeof contract;
    bw_client_config_init(&client_config.known);
    client_config.known.size = sizeof client_config;
    bw_server_config_init(&server_config.known);
    server_config.known.size = sizeof server_config;

    /* Fields that the library does not know are refused, unless they are 0. */
    server_config.added[1] = 1;
    FAILS(BW_E_INVALID, bw_server_builder_new(NULL, &server_config.known, &builder, &error));
    CHECK(strstr(error.message, "newer header") != NULL);
    server_config.added[1] = 0;
    OK(bw_server_builder_new(NULL, &server_config.known, &builder, &error));
    contract.added[0] = 1;
    FAILS(BW_E_INVALID, bw_server_builder_serve(builder, &contract.known, answer_it, NULL, NULL, &error));
    CHECK(strstr(error.message, "newer header") != NULL);
    contract.added[0] = 0;
    OK(bw_server_builder_serve(builder, &contract.known, answer_it, NULL, NULL, &error));
    OK(bw_server_builder_start(builder, &server, &error));
    client_config.added[0] = (uint64_t)1 << 63;
    FAILS(BW_E_INVALID, bw_client_new(NULL, &contract.known, &client_config.known, &client, &error));
    CHECK(strstr(error.message, "newer header") != NULL);
    client_config.added[0] = 0;
    OK(bw_client_new(NULL, &contract.known, &client_config.known, &client, &error));
    OK(bw_client_call(client, "abc", 3, 10 * SECOND, &answer, &error));

    /* Counters that the library does not know are 0, and nothing is written behind them. */
    struct newer_client_stats client_stats;
    TAINT(client_stats, offsetof(struct newer_client_stats, behind));
    OK(bw_client_get_stats(client, &client_stats.known, &error));
    CHECK(client_stats.known.made == 1 && IS_FILLED(client_stats));
    struct newer_server_stats server_stats;
    TAINT(server_stats, offsetof(struct newer_server_stats, behind));
    OK(bw_server_get_stats(server, &server_stats.known, &error));
    CHECK(server_stats.known.admitted == 1 && IS_FILLED(server_stats));
    /* One of the first version has the counters up to poisoned. */
    const size_t first = offsetof(bw_server_stats, stalled);
    TAINT(server_stats, first);
    OK(bw_server_get_stats(server, &server_stats.known, &error));
    CHECK(server_stats.known.size == first && server_stats.known.admitted == 1 && server_stats.known.poisoned == 0);
    CHECK(is_all((char *)&server_stats + first, sizeof server_stats - first, UNTOUCHED));
    struct newer_error newer;
    TAINT(newer, offsetof(struct newer_error, behind));
    CHECK(bw_client_new(NULL, NULL, NULL, &client, &newer.known) == BW_E_INVALID);
    CHECK(newer.known.code == BW_E_INVALID && IS_FILLED(newer));

    /* A size that no struct has. */
    const size_t sizes[] = { 0, sizeof(size_t), sizeof(bw_contract) - 1, 4097, SIZE_MAX };
    for (size_t at = 0; at < sizeof sizes / sizeof *sizes; at++) {
        contract.known.size = client_config.known.size = server_config.known.size = sizes[at];
        FAILS(BW_E_INVALID, bw_client_new(NULL, &contract.known, NULL, &client, &error));
        contract.known.size = sizeof contract;
        FAILS(BW_E_INVALID, bw_client_new(NULL, &contract.known, &client_config.known, &client, &error));
        FAILS(BW_E_INVALID, bw_server_builder_new(NULL, &server_config.known, &builder, &error));
        TAINT(client_stats, sizes[at]);
        FAILS(BW_E_INVALID, bw_client_get_stats(client, &client_stats.known, &error));
        CHECK(strstr(error.message, "sizeof(bw_client_stats)") != NULL);
        TAINT(server_stats, sizes[at]);
        FAILS(BW_E_INVALID, bw_server_get_stats(server, &server_stats.known, &error));
        TAINT(newer, sizes[at]);
        CHECK(bw_client_new(NULL, NULL, NULL, &client, &newer.known) == BW_E_INVALID);
        const size_t after = sizeof(size_t);
        CHECK(is_all((char *)&client_stats + after, sizeof client_stats - after, UNTOUCHED));
        CHECK(is_all((char *)&server_stats + after, sizeof server_stats - after, UNTOUCHED));
        CHECK(is_all((char *)&newer + after, sizeof newer - after, UNTOUCHED));
    }

    /* The functions that get no size write what the first version had. */
    struct { bw_client_config first; uint64_t behind; } of_client;
    struct { bw_server_config first; uint64_t behind; } of_server;
    TAINT(of_client, 0);
    TAINT(of_server, 0);
    bw_client_config_init(&of_client.first);
    bw_server_config_init(&of_server.first);
    CHECK(of_client.first.size == 72 && is_all((char *)&of_client + 72, sizeof of_client - 72, UNTOUCHED));
    CHECK(of_server.first.size == 88 && is_all((char *)&of_server + 88, sizeof of_server - 88, UNTOUCHED));

    bw_client_free(client);
    bw_server_stop(server);
    return 0;
}
