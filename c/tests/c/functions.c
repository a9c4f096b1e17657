/* Every function of the header, with both ends in this process. */
#include "check.h"

#include <poll.h>
#include <pthread.h>

static int freed;

static void count_free(void *user)
{
    CHECK(user == &freed);
    freed++;
}

static void fill(void *bytes, size_t len, void *user)
{
    memset(bytes, *(const int *)user, len);
}

/* Answers with the request reversed; fails for "no", and returns 7 for "7". */
static int reverse(void *user, const bw_caller *caller, const void *request, size_t len, bw_answer *answer)
{
    CHECK(user == &freed && bw_caller_uid(caller) != UINT32_MAX && bw_caller_pid(caller) > 0);
    CHECK(!bw_caller_is_abandoned(caller));
    if (len == 2 && memcmp(request, "no", 2) == 0)
        return bw_answer_fail(answer, "it does not like that");
    if (len == 1 && *(const char *)request == '7')
        return 7;
    void *data = NULL;
    CHECK(bw_answer_write(answer, request, len / 2) == BW_OK);
    CHECK(bw_answer_reserve(answer, 1, NULL) == BW_E_INVALID);
    CHECK(bw_answer_reserve(answer, len - len / 2, &data) == BW_OK);
    unsigned char *start = (unsigned char *)data - len / 2;
    for (size_t at = 0; at < len; at++)
        start[at] = ((const unsigned char *)request)[len - 1 - at];
    return 0;
}

static void *cancel(void *canceller)
{
    CHECK(bw_canceller_cancel(canceller) == BW_OK);
    return NULL;
}

static void client_alone(void)
{
    bw_error error = BW_ERROR_INIT;
    bw_contract absent = BW_CONTRACT("absent", 1);
    bw_client *client = NULL;
    OK(bw_client_new(NULL, &absent, NULL, &client, &error));
    int state = -1;
    OK(bw_client_refresh(client, &state, &error));
    CHECK(state == BW_STATE_ABSENT);
    FAILS(BW_E_ABSENT, bw_client_check(client, &error));
    CHECK(error.fault == BW_FAULT_NOBODY && error.executed == 0 && strlen(error.message) > 10);
    FAILS(BW_E_DEADLINE, bw_client_wait_available(client, SECOND / 100, &error));
    int fd = -1;
    OK(bw_client_arrival_fd(client, &fd, &error));
    struct pollfd nothing = { fd, POLLIN, 0 };
    CHECK(poll(&nothing, 1, 0) == 0);
    bw_canceller *canceller = NULL;
    OK(bw_client_canceller(client, &canceller, &error));
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, cancel, canceller) == 0);
    FAILS(BW_E_CANCELLED, bw_client_wait_available(client, 60 * SECOND, &error));
    pthread_join(thread, NULL);
    bw_client_free(client);
    bw_canceller_free(canceller);
}

static void calls(bw_client *client)
{
    bw_error error = BW_ERROR_INIT;
    bw_bytes answer;
    bw_client_stats stats = { .size = sizeof stats };
    FAILS(BW_E_INVALID, bw_client_call(client, "abc", 3, BW_TIMEOUT_DEFAULT, NULL, &error));
    CHECK(bw_client_get_stats(client, &stats, &error) == BW_OK && stats.made == 0);
    OK(bw_client_call(client, "abc", 3, BW_TIMEOUT_DEFAULT, &answer, &error));
    CHECK(answer.len == 3 && memcmp(answer.data, "cba", 3) == 0);
    OK(bw_client_call(client, NULL, 0, SECOND, &answer, &error));
    CHECK(answer.len == 0 && answer.data != NULL);
    FAILS(BW_E_HANDLER, bw_client_call(client, "no", 2, SECOND, &answer, &error));
    CHECK(strstr(error.message, "it does not like that") != NULL);
    CHECK(error.fault == BW_FAULT_PEER && error.executed == 1 && error.handler_code == 0);
    FAILS(BW_E_HANDLER, bw_client_call(client, "7", 1, SECOND, &answer, &error));
    CHECK(strstr(error.message, "returned 7") != NULL && error.handler_code == 7);

    int seven = 7;
    bw_payload *large = NULL, *back = NULL;
    OK(bw_payload_build(40u << 20, fill, &seven, &large, &error));
    OK(bw_client_call_payload(client, large, 30 * SECOND, &back, &error));
    bw_bytes sent = bw_payload_bytes(large), got = bw_payload_bytes(back);
    CHECK(sent.len == 40u << 20 && got.len == sent.len && memcmp(sent.data, got.data, sent.len) == 0);
    bw_payload_free(large);
    bw_payload_free(back);

    uint64_t first = 0, second = 0, third = 0;
    OK(bw_client_submit(client, "12", 2, &first, &error));
    OK(bw_client_submit(client, "no", 2, &second, &error));
    OK(bw_client_submit(client, "34", 2, &third, &error));
    CHECK(first < second && second < third);
    bw_reply reply;
    FAILS(BW_E_INVALID, bw_client_wait_reply(client, 10 * SECOND, NULL, &error));
    /* Two workers may answer in any order. */
    for (int at = 0; at < 3; at++) {
        OK(bw_client_wait_reply(client, 10 * SECOND, &reply, &error));
        if (reply.ticket == second) {
            CHECK(reply.code == BW_E_HANDLER && strstr(error.message, "like that") != NULL);
        } else {
            const char *expected = reply.ticket == first ? "21" : "43";
            CHECK(reply.ticket == first || reply.ticket == third);
            CHECK(reply.code == BW_OK && reply.answer.len == 2 && memcmp(reply.answer.data, expected, 2) == 0);
        }
    }
    FAILS(BW_E_WOULD_BLOCK, bw_client_try_reply(client, &reply, &error));
    FAILS(BW_E_DEADLINE, bw_client_wait_reply(client, 1000, &reply, &error));
    int was_in_flight = -1;
    OK(bw_client_abandon(client, third, &was_in_flight, &error));
    CHECK(was_in_flight == 0);

    bw_bytes requests[] = { { "ab", 2 }, { "no", 2 }, { "", 0 } };
    OK(bw_client_call_batch(client, requests, 3, &error));
    FAILS(BW_E_INVALID, bw_client_batch_next(client, NULL, &error));
    OK(bw_client_batch_next(client, &answer, &error));
    CHECK(answer.len == 2 && memcmp(answer.data, "ba", 2) == 0);
    FAILS(BW_E_HANDLER, bw_client_batch_next(client, &answer, &error));
    OK(bw_client_batch_next(client, &answer, &error));
    CHECK(answer.len == 0);
    FAILS(BW_E_WOULD_BLOCK, bw_client_batch_next(client, &answer, &error));

    for (int at = 0; at < 10; at++)
        OK(bw_client_post(client, "post", 4, &error));
    OK(bw_client_flush(client, 10 * SECOND, &error));
    OK(bw_client_trim(client, &error));
    OK(bw_client_get_stats(client, &stats, &error));
    CHECK(stats.posts_taken == 10 && stats.posts_lost == 0 && stats.in_flight == 0);
    CHECK(stats.made == stats.answered + stats.refused + stats.failed + stats.posts_taken);
}

static void event_loop(const bw_contract *contract)
{
    bw_error error = BW_ERROR_INIT;
    bw_client_config config;
    bw_client_config_init(&config);
    config.doorbell = BW_DOORBELL_EVENTFD;
    config.spin_max_ns = 0;
    bw_client *client = NULL;
    OK(bw_client_new(NULL, contract, &config, &client, &error));
    OK(bw_client_submit(client, "xy", 2, NULL, &error));
    int fd = -1, is_ready = 0;
    OK(bw_client_fd(client, &fd, &error));
    bw_reply reply;
    for (;;) {
        OK(bw_client_arm(client, &is_ready, &error));
        if (!is_ready) {
            struct pollfd bell = { fd, POLLIN, 0 };
            CHECK(poll(&bell, 1, 10000) == 1);
        }
        int code = bw_client_try_reply(client, &reply, &error);
        if (code == BW_OK)
            break;
        CHECK(code == BW_E_WOULD_BLOCK);
    }
    CHECK(memcmp(reply.answer.data, "yx", 2) == 0);
    bw_client_free(client);
}

static void snapshots(bw_publisher *publisher)
{
    bw_error error = BW_ERROR_INIT;
    bw_contract contract = BW_CONTRACT("table", 1);
    bw_cache *cache = NULL;
    bw_snapshot snapshot;
    OK(bw_cache_new(NULL, &contract, NULL, &cache, &error));
    FAILS(BW_E_ABSENT, bw_cache_current(cache, &snapshot, &error));
    int outcome = -1;
    OK(bw_cache_refresh(cache, 10 * SECOND, &outcome, &error));
    CHECK(outcome == BW_EMPTY);
    uint64_t generation = 0;
    OK(bw_publisher_publish(publisher, "first", 5, &generation, &error));
    CHECK(generation == 1);
    OK(bw_cache_wait(cache, 10 * SECOND, &outcome, &error));
    CHECK(outcome == BW_CHANGED);
    OK(bw_cache_current(cache, &snapshot, &error));
    CHECK(snapshot.generation == 1 && snapshot.bytes.len == 5 && memcmp(snapshot.bytes.data, "first", 5) == 0);
    int nine = 9;
    OK(bw_publisher_publish_with(publisher, 1u << 20, fill, &nine, &generation, &error));
    OK(bw_cache_wait(cache, BW_FOREVER, &outcome, &error));
    OK(bw_cache_current(cache, &snapshot, &error));
    CHECK(snapshot.bytes.len == 1u << 20 && ((const unsigned char *)snapshot.bytes.data)[12345] == 9);
    OK(bw_cache_refresh(cache, 0, &outcome, &error));
    CHECK(outcome == BW_UNCHANGED);
    bw_canceller *canceller = NULL;
    pthread_t thread;
    OK(bw_cache_canceller(cache, &canceller, &error));
    CHECK(pthread_create(&thread, NULL, cancel, canceller) == 0);
    FAILS(BW_E_CANCELLED, bw_cache_wait(cache, BW_FOREVER, &outcome, &error));
    pthread_join(thread, NULL);
    bw_canceller_free(canceller);
    int fd = -1;
    FAILS(BW_E_INVALID, bw_cache_fd(cache, &fd, NULL, &error));
    CHECK(strstr(error.message, "BW_DOORBELL_EVENTFD") != NULL);
    bw_cache_free(cache);

    /* In an event loop. */
    bw_client_config config;
    bw_client_config_init(&config);
    config.doorbell = BW_DOORBELL_EVENTFD;
    OK(bw_cache_new(NULL, &contract, &config, &cache, &error));
    for (int published = 0, is_ready = 1; published < 3;) {
        OK(bw_cache_refresh(cache, 0, &outcome, &error));
        if (outcome == BW_CHANGED) {
            published++;
            OK(bw_publisher_publish(publisher, "next", 4, NULL, &error));
        }
        OK(bw_cache_arm(cache, &is_ready, &error));
        if (is_ready)
            continue;
        uint64_t due = 0;
        OK(bw_cache_fd(cache, &fd, &due, &error));
        struct pollfd bell = { fd, POLLIN, 0 };
        int ready = poll(&bell, 1, due < 60 * SECOND ? (int)(due / 1000000) + 1 : 60000);
        CHECK(ready == 1 || due != BW_FOREVER);
    }
    bw_cache_free(cache);
}

static void events(bw_event_publisher *publisher)
{
    bw_error error = BW_ERROR_INIT;
    bw_contract contract = BW_CONTRACT("changes", 1);
    bw_client_config config;
    bw_client_config_init(&config);
    config.doorbell = BW_DOORBELL_EVENTFD;
    uint64_t number = 0;
    OK(bw_event_publisher_send(publisher, "one", 3, &number, &error));
    CHECK(number == 1);
    bw_subscriber *subscriber = NULL;
    bw_delivery delivery;
    FAILS(BW_E_INVALID, bw_subscriber_new(NULL, &contract, 9, &config, &subscriber, &error));
    OK(bw_subscriber_new(NULL, &contract, BW_START_OLDEST, &config, &subscriber, &error));
    FAILS(BW_E_INVALID, bw_subscriber_next(subscriber, 10 * SECOND, NULL, &error));
    OK(bw_subscriber_next(subscriber, 10 * SECOND, &delivery, &error));
    CHECK(delivery.kind == BW_EVENT && delivery.number == 1 && memcmp(delivery.event.data, "one", 3) == 0);
    FAILS(BW_E_WOULD_BLOCK, bw_subscriber_next(subscriber, 0, &delivery, &error));

    int is_ready = 0, fd = -1;
    for (;;) {
        OK(bw_subscriber_arm(subscriber, &is_ready, &error));
        if (!is_ready)
            break;
        FAILS(BW_E_WOULD_BLOCK, bw_subscriber_next(subscriber, 0, &delivery, &error));
    }
    OK(bw_subscriber_fd(subscriber, &fd, &error));
    uint64_t timeout_ns = 0;
    OK(bw_subscriber_poll_timeout(subscriber, &timeout_ns, &error));
    CHECK(timeout_ns == BW_FOREVER);
    OK(bw_event_publisher_set_depth(publisher, 1 << 20, &error));
    OK(bw_event_publisher_send(publisher, "two", 3, NULL, &error));
    struct pollfd bell = { fd, POLLIN, 0 };
    CHECK(poll(&bell, 1, 10000) == 1);
    OK(bw_subscriber_next(subscriber, SECOND, &delivery, &error));
    CHECK(delivery.number == 2 && delivery.event.len == 3);

    /* More than are kept: what was missed is counted. */
    static const char long_one[1000];
    for (int at = 0; at < 2000; at++)
        OK(bw_event_publisher_send(publisher, long_one, sizeof long_one, &number, &error));
    OK(bw_subscriber_next(subscriber, SECOND, &delivery, &error));
    CHECK(delivery.kind == BW_MISSED);
    uint64_t next = 3 + delivery.number;
    while (bw_subscriber_next(subscriber, 0, &delivery, NULL) == BW_OK)
        CHECK(delivery.kind == BW_EVENT && delivery.number == next++);
    CHECK(next == number + 1);

    bw_canceller *canceller = NULL;
    OK(bw_subscriber_canceller(subscriber, &canceller, &error));
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, cancel, canceller) == 0);
    FAILS(BW_E_CANCELLED, bw_subscriber_next(subscriber, BW_FOREVER, &delivery, &error));
    pthread_join(thread, NULL);
    bw_canceller_free(canceller);
    bw_subscriber_free(subscriber);
    bw_subscriber_free(NULL);
}

int main(void)
{
    bw_error error = BW_ERROR_INIT;
    CHECK(strcmp(bw_version(), "0.1.0") == 0);
    CHECK(bw_schema("foobar") == 0x85944171f73967e8ull && bw_schema(NULL) == 0);
    CHECK(bw_cgroup_name_hash("foobar") == 0x85944171f73967e8ull);
    CHECK(bw_cgroup_name_hash32("foobar") == 0xbf9cf968u && bw_cgroup_name_hash32(NULL) == 0);
    client_alone();

    bw_server_config config;
    bw_server_config_init(&config);
    config.workers = 2;
    bw_server_builder *builder = NULL;
    bw_contract contract = BW_CONTRACT("reverse", 3), table = BW_CONTRACT("table", 1);
    contract.schema = bw_schema("bytes");
    OK(bw_server_builder_new(NULL, &config, &builder, &error));
    OK(bw_server_builder_serve(builder, &contract, reverse, &freed, count_free, &error));
    FAILS(BW_E_INVALID, bw_server_builder_serve(builder, &contract, reverse, &freed, count_free, &error));
    CHECK(freed == 1);
    bw_publisher *publisher = NULL;
    FAILS(BW_E_INVALID, bw_server_builder_publish(builder, &table, NULL, &error));
    OK(bw_server_builder_publish(builder, &table, &publisher, &error));
    bw_contract changes = BW_CONTRACT("changes", 1);
    bw_event_publisher *publishes = NULL;
    FAILS(BW_E_INVALID, bw_server_builder_events(builder, &changes, 1 << 16, NULL, &error));
    OK(bw_server_builder_events(builder, &changes, 1 << 16, &publishes, &error));
    bw_server *server = NULL;
    OK(bw_server_builder_start(builder, &server, &error));

    bw_client *client = NULL;
    OK(bw_client_new(NULL, &contract, NULL, &client, &error));
    OK(bw_client_wait_available(client, 10 * SECOND, &error));
    OK(bw_client_check(client, &error));
    calls(client);
    event_loop(&contract);
    snapshots(publisher);
    events(publishes);
    bw_contract other = contract;
    other.schema++;
    bw_client *strange = NULL;
    bw_bytes answer;
    OK(bw_client_new(NULL, &other, NULL, &strange, &error));
    FAILS(BW_E_INCOMPATIBLE, bw_client_call(strange, "a", 1, SECOND, &answer, &error));
    bw_client_free(strange);

    bw_cgroups *cgroups = NULL;
    bw_cgroup cgroup;
    int outcome = -1;
    OK(bw_cgroups_new(NULL, NULL, &cgroups, &error));
    OK(bw_cgroups_refresh(cgroups, 0, &outcome, &error));
    CHECK(outcome == BW_UNAVAILABLE && bw_cgroups_count(cgroups) == 0);
    FAILS(BW_E_ABSENT, bw_cgroups_by_id(cgroups, 1, &cgroup, &error));
    FAILS(BW_E_ABSENT, bw_cgroups_by_path(cgroups, "/", &cgroup, &error));
    FAILS(BW_E_ABSENT, bw_cgroups_by_name(cgroups, "x", &cgroup, &error));
    FAILS(BW_E_ABSENT, bw_cgroups_at(cgroups, 0, &cgroup, &error));
    bw_text text;
    FAILS(BW_E_ABSENT, bw_cgroups_root(cgroups, 1, &text, &error));
    FAILS(BW_E_ABSENT, bw_cgroups_label(cgroups, 1, 0, &text, &text, &error));
    bw_cgroups_free(cgroups);

    bw_server_stats stats = { .size = sizeof stats };
    OK(bw_server_get_stats(server, &stats, &error));
    CHECK(stats.posted == 10 && stats.poisoned == 0 && stats.admitted >= 3);
    CHECK(stats.stalled + stats.out_of_descriptors + stats.out_of_memory + stats.over_quota == 0);
    bw_server_stop(server);
    CHECK(freed == 2);
    bw_reply reply;
    FAILS(BW_E_STOPPING, bw_client_wait_reply(client, 10 * SECOND, &reply, &error));
    FAILS(BW_E_ABSENT, bw_client_submit(client, "late", 4, NULL, &error));
    bw_publisher_free(publisher);
    bw_event_publisher_free(publishes);
    bw_event_publisher_free(NULL);
    bw_client_free(client);

    OK(bw_server_builder_new(NULL, NULL, &builder, &error));
    bw_server_builder_free(builder);
    return 0;
}
