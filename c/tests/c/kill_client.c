/* Calls, pipelines, refreshes and listens without a pause, until its input ends. Each failure has to be
 * that of a provider that went, and to be right about whether its handler ran. */
#include "kill.h"

static struct message message;
static uint64_t sent, answered, failed;

/* A provider that was killed, or none. */
static void judge(int code, const bw_error *error, uint64_t number)
{
    if (code != BW_E_PEER_GONE && code != BW_E_ABSENT) {
        fprintf(stderr, "request %llu: code %d: %s\n", (unsigned long long)number, code, error->message);
        exit(1);
    }
    CHECK(error->executed || atomic_load(handled) < number);
    failed++;
}

static void call(bw_client *client, size_t len)
{
    bw_error error = BW_ERROR_INIT;
    bw_bytes answer;
    uint64_t number = ++sent;
    int code = bw_client_call(client, &message, fill(&message, number, len), 30 * SECOND, &answer, &error);
    if (code != BW_OK) {
        judge(code, &error, number);
        return;
    }
    CHECK(number_of(answer.data, answer.len) == number && atomic_load(handled) >= number);
    answered++;
}

static void pipeline(bw_client *client)
{
    bw_error error = BW_ERROR_INIT;
    bw_reply reply;
    uint64_t first = sent + 1;
    int code = BW_OK;
    while (sent < first + 3 && code == BW_OK) {
        code = bw_client_submit(client, &message, fill(&message, ++sent, 200), NULL, &error);
        if (code != BW_OK)
            judge(code, &error, sent);
    }
    uint64_t last = code == BW_OK ? sent : sent - 1;
    for (uint64_t number = first; number <= last; number++) {
        code = bw_client_wait_reply(client, 30 * SECOND, &reply, &error);
        if (code != BW_OK) {
            judge(code, &error, UINT64_MAX);
            return;
        }
        CHECK(reply.code == BW_OK && number_of(reply.answer.data, reply.answer.len) == number);
        answered++;
    }
}

static void take_snapshot(bw_cache *cache, uint64_t *newest)
{
    bw_error error = BW_ERROR_INIT;
    bw_snapshot snapshot;
    int outcome;
    int code = bw_cache_refresh(cache, SECOND / 500, &outcome, &error);
    if (code != BW_OK)
        judge(code, &error, UINT64_MAX);
    if (code == BW_OK && outcome == BW_CHANGED) {
        OK(bw_cache_current(cache, &snapshot, &error));
        *newest = number_of(snapshot.bytes.data, snapshot.bytes.len);
    }
}

static void take_events(bw_subscriber *subscriber, uint64_t *expected)
{
    bw_error error = BW_ERROR_INIT;
    bw_delivery delivery;
    int code;
    while ((code = bw_subscriber_next(subscriber, 0, &delivery, &error)) == BW_OK) {
        if (delivery.kind == BW_RESTARTED)
            *expected = 0;
        else if (delivery.kind == BW_MISSED)
            *expected += *expected ? delivery.number : 0;
        else {
            CHECK(number_of(delivery.event.data, delivery.event.len) == delivery.number);
            CHECK(!*expected || delivery.number == *expected);
            *expected = delivery.number + 1;
        }
    }
    if (code != BW_E_WOULD_BLOCK && code != BW_E_DEADLINE)
        judge(code, &error, UINT64_MAX);
}

int main(int argc, char **argv)
{
    bw_error error = BW_ERROR_INIT;
    bw_contract calls = BW_CONTRACT("echo", 1), snapshots = BW_CONTRACT("state", 1), events = BW_CONTRACT("tick", 1);
    bw_client *client = NULL;
    bw_cache *cache = NULL;
    bw_subscriber *subscriber = NULL;
    uint64_t newest = 0, expected = 0;
    CHECK(argc == 2);
    map_handled(argv[1]);
    sent = atomic_load(handled);
    /* Whatever the C library opens for itself. */
    open_descriptors();
    int descriptors = open_descriptors();
    bw_client_config config;
    bw_client_config_init(&config);
    /* A busy machine may take its time; a death has to be noticed without. */
    config.connect_timeout_ns = 60 * SECOND;
    OK(bw_client_new(NULL, &calls, &config, &client, &error));
    OK(bw_cache_new(NULL, &snapshots, &config, &cache, &error));
    OK(bw_subscriber_new(NULL, &events, BW_START_NOW, &config, &subscriber, &error));
    for (uint64_t turn = 0; command(0) != -1; turn++) {
        int code = bw_client_wait_available(client, SECOND / 100, &error);
        if (code == BW_OK) {
            call(client, turn % 16 == 15 ? MOST : turn * 97 % 5000);
            pipeline(client);
        }
        take_snapshot(cache, &newest);
        take_events(subscriber, &expected);
    }
    /* On a busy machine each provider may die before its snapshot is here; the last one lives. */
    for (int left = 30000; left > 0 && newest == 0; left--) {
        take_snapshot(cache, &newest);
        poll(NULL, 0, 1);
    }
    /* A wait for a provider that was in vain would keep a descriptor for the next one. */
    OK(bw_client_wait_available(client, 60 * SECOND, &error));
    bw_client_free(client);
    bw_cache_free(cache);
    bw_subscriber_free(subscriber);
    /* Some of what a provider sent is closed by another thread, a little later, which keeps a descriptor of its own. */
    for (int left = 30000; left > 0 && open_descriptors() > descriptors + 1; left--)
        poll(NULL, 0, 1);
    CHECK(open_descriptors() <= descriptors + 1 && shared_maps() == 0);
    printf("%llu %llu %llu\n", (unsigned long long)answered, (unsigned long long)failed, (unsigned long long)newest);
    return 0;
}
