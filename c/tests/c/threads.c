/* What the header allows several threads to do at once, for ThreadSanitizer; with the argument "wrong", what it forbids. */
#include "check.h"

#include <pthread.h>

#define THREADS 4
#define TURNS 200

static bw_publisher *publisher;
static bw_event_publisher *event_publisher;
static bw_server *server;
static bw_payload *payload;
static bw_client *passed_on;
static pthread_mutex_t counting = PTHREAD_MUTEX_INITIALIZER;
static int handled;

/* By several workers at once. */
static int echo(void *user, const bw_caller *caller, const void *request, size_t len, bw_answer *answer)
{
    CHECK(user == NULL && bw_caller_pid(caller) > 0);
    pthread_mutex_lock(&counting);
    handled++;
    pthread_mutex_unlock(&counting);
    return bw_answer_write(answer, request, len);
}

static void fill(void *bytes, size_t len, void *user)
{
    memset(bytes, *(const int *)user, len);
}

static bw_client *new_client(void)
{
    bw_error error = BW_ERROR_INIT;
    bw_contract contract = BW_CONTRACT("echo", 1);
    bw_client_config config;
    bw_client *client = NULL;
    bw_client_config_init(&config);
    config.timeout_ns = config.connect_timeout_ns = 60 * SECOND;
    OK(bw_client_new(NULL, &contract, &config, &client, &error));
    OK(bw_client_wait_available(client, 60 * SECOND, &error));
    return client;
}

static void call(bw_client *client)
{
    bw_error error = BW_ERROR_INIT;
    bw_bytes answer;
    OK(bw_client_call(client, "abc", 3, BW_TIMEOUT_DEFAULT, &answer, &error));
    CHECK(answer.len == 3 && memcmp(answer.data, "abc", 3) == 0);
}

/* A client, a cache and a subscriber of its own; the publishers, the server's counters and the payload are everybody's. */
static void *work(void *unused)
{
    bw_error error = BW_ERROR_INIT;
    bw_contract snapshots = BW_CONTRACT("table", 1), events = BW_CONTRACT("changes", 1);
    bw_client *client = new_client();
    bw_cache *cache = NULL;
    bw_subscriber *subscriber = NULL;
    bw_payload *answer = NULL;
    OK(bw_cache_new(NULL, &snapshots, NULL, &cache, &error));
    OK(bw_subscriber_new(NULL, &events, BW_START_NOW, NULL, &subscriber, &error));
    for (int turn = 0; turn < TURNS; turn++) {
        bw_snapshot snapshot;
        bw_delivery delivery;
        bw_server_stats stats = { .size = sizeof stats };
        int outcome = -1;
        call(client);
        OK(bw_client_post(client, "post", 4, &error));
        OK(bw_publisher_publish(publisher, "table", 5, NULL, &error));
        OK(bw_event_publisher_send(event_publisher, "event", 5, NULL, &error));
        OK(bw_cache_refresh(cache, 60 * SECOND, &outcome, &error));
        OK(bw_cache_current(cache, &snapshot, &error));
        CHECK(snapshot.bytes.len == 5 && memcmp(snapshot.bytes.data, "table", 5) == 0);
        while (bw_subscriber_next(subscriber, 0, &delivery, NULL) == BW_OK)
            CHECK(delivery.kind != BW_EVENT || delivery.event.len == 5);
        OK(bw_server_get_stats(server, &stats, &error));
        CHECK(stats.poisoned == 0);
    }
    OK(bw_client_flush(client, 60 * SECOND, &error));
    OK(bw_client_call_payload(client, payload, 60 * SECOND, &answer, &error));
    CHECK(bw_payload_bytes(answer).len == bw_payload_bytes(payload).len);
    bw_payload_free(answer);
    bw_subscriber_free(subscriber);
    bw_cache_free(cache);
    bw_client_free(client);
    return unused;
}

/* Waits where nobody provides, until one of the others cancels. */
static void *cancel(void *canceller)
{
    CHECK(bw_canceller_cancel(canceller) == BW_OK);
    return NULL;
}

static void cancelled(void)
{
    bw_error error = BW_ERROR_INIT;
    bw_contract absent = BW_CONTRACT("absent", 1);
    bw_client *client = NULL;
    bw_canceller *canceller = NULL;
    pthread_t threads[THREADS];
    OK(bw_client_new(NULL, &absent, NULL, &client, &error));
    OK(bw_client_canceller(client, &canceller, &error));
    for (int at = 0; at < THREADS; at++)
        CHECK(pthread_create(&threads[at], NULL, cancel, canceller) == 0);
    FAILS(BW_E_CANCELLED, bw_client_wait_available(client, 60 * SECOND, &error));
    for (int at = 0; at < THREADS; at++)
        pthread_join(threads[at], NULL);
    bw_canceller_free(canceller);
    bw_client_free(client);
}

/* One thread at a time, in the order of pthread_create and pthread_join. */
static void *call_passed_on(void *unused)
{
    for (int turn = 0; turn < TURNS; turn++)
        call(passed_on);
    return unused;
}

/* Two threads call with one client: their order is nobody's, which is all that has to be seen. */
static void *use_wrongly(void *unused)
{
    bw_bytes answer;
    for (int turn = 0; turn < TURNS; turn++)
        bw_client_call(passed_on, "abc", 3, SECOND / 10, &answer, NULL);
    return unused;
}

static void in_threads(void *(*body)(void *), int count)
{
    pthread_t threads[THREADS];
    for (int at = 0; at < count; at++)
        CHECK(pthread_create(&threads[at], NULL, body, NULL) == 0);
    for (int at = 0; at < count; at++)
        pthread_join(threads[at], NULL);
}

int main(int argc, char **argv)
{
    bw_error error = BW_ERROR_INIT;
    bw_contract contract = BW_CONTRACT("echo", 1), table = BW_CONTRACT("table", 1), changes = BW_CONTRACT("changes", 1);
    bw_server_builder *builder = NULL;
    bw_server_config config;
    int seven = 7;
    bw_server_config_init(&config);
    config.workers = 2;
    OK(bw_server_builder_new(NULL, &config, &builder, &error));
    OK(bw_server_builder_serve(builder, &contract, echo, NULL, NULL, &error));
    OK(bw_server_builder_publish(builder, &table, &publisher, &error));
    OK(bw_server_builder_events(builder, &changes, 1 << 16, &event_publisher, &error));
    OK(bw_server_builder_start(builder, &server, &error));
    OK(bw_payload_build(100000, fill, &seven, &payload, &error));
    passed_on = new_client();
    if (argc > 1 && strcmp(argv[1], "wrong") == 0) {
        in_threads(use_wrongly, 2);
        /* Whatever became of the client. */
        _Exit(0);
    }
    in_threads(work, THREADS);
    cancelled();
    in_threads(call_passed_on, 1);
    call(passed_on);
    in_threads(call_passed_on, 1);
    bw_client_free(passed_on);
    bw_payload_free(payload);
    bw_server_stop(server);
    bw_publisher_free(publisher);
    bw_event_publisher_free(event_publisher);
    CHECK(handled == THREADS * (2 * TURNS + 1) + 2 * TURNS + 1);
    return 0;
}
