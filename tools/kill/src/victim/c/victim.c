/* Victims that are C programs: each runs one scenario over libbellwire. They do what those of ../caller.rs and
 * ../provider.rs do. */
#include <bellwire.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "victim.h"

/* They stop themselves for their tracer: at the gate, after which they are watched, and at the end. */
#define GATE SIGUSR1
#define END SIGUSR2

#define MINUTE 60000000000ull
#define HEAD 24

static bw_error error = BW_ERROR_INIT;

/* Ends the victim, which its tracer notices. */
static void fail(int line)
{
    fprintf(stderr, "a victim in C failed at line %d: %d, %s\n", line, error.code, error.message);
    exit(1);
}

#define CHECK(condition) ((condition) ? (void)0 : fail(__LINE__))
#define OK(call) CHECK((call) == BW_OK)

static uint8_t pattern(size_t at)
{
    return (uint8_t)(at * 167 ^ at >> 8);
}

/* Writes three numbers, and what fills the message. */
static void write_message(void *into, size_t len, uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t numbers[3] = {a, b, c};
    memcpy(into, numbers, HEAD);
    for (size_t at = HEAD; at < len; at++)
        ((uint8_t *)into)[at] = pattern(at);
}

/* Whether a message is these three numbers and what fills it. */
static int is_message(bw_bytes message, size_t len, uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t numbers[3] = {a, b, c};
    if (message.len != len || memcmp(message.data, numbers, HEAD) != 0)
        return 0;
    for (size_t at = HEAD; at < len; at++)
        if (((const uint8_t *)message.data)[at] != pattern(at))
            return 0;
    return 1;
}

static void config_of(const struct victim *victim, bw_client_config *config)
{
    bw_client_config_init(config);
    config->timeout_ns = config->connect_timeout_ns = MINUTE;
    config->spin_max_ns = 0;
    config->lane_size = 4096;
    config->doorbell = victim->doorbell;
    config->token = NULL;
}

static bw_client *new_client(const struct victim *victim)
{
    bw_contract contract = BW_CONTRACT("numbered-call", 1);
    bw_client_config config;
    bw_client *client;
    config_of(victim, &config);
    OK(bw_client_new(victim->dir, &contract, &config, &client, &error));
    return client;
}

static void call(bw_client *client, const void *request, size_t len, uint64_t number, size_t answer)
{
    bw_bytes bytes;
    OK(bw_client_call(client, request, len, BW_TIMEOUT_DEFAULT, &bytes, &error));
    CHECK(is_message(bytes, answer, ~number, 0, 0));
}

static void open_session(const struct victim *victim)
{
    bw_client *client = new_client(victim);
    raise(GATE);
    OK(bw_client_wait_available(client, MINUTE, &error));
    raise(END);
    bw_client_free(client);
}

static void fetch(const struct victim *victim)
{
    bw_contract contract = BW_CONTRACT("passed-snapshot", 1);
    bw_client_config config;
    bw_cache *cache;
    int outcome;
    config_of(victim, &config);
    OK(bw_cache_new(victim->dir, &contract, &config, &cache, &error));
    OK(bw_cache_refresh(cache, MINUTE, &outcome, &error));
    CHECK(outcome == BW_CHANGED);
    raise(GATE);
    OK(bw_cache_refresh(cache, MINUTE, &outcome, &error));
    raise(END);
    CHECK(outcome == BW_CHANGED);
    bw_cache_free(cache);
}

static void subscribe(const struct victim *victim)
{
    bw_contract contract = BW_CONTRACT("numbered-event", 1);
    bw_client_config config;
    bw_subscriber *subscriber;
    raise(GATE);
    config_of(victim, &config);
    OK(bw_subscriber_new(victim->dir, &contract, BW_START_OLDEST, &config, &subscriber, &error));
    for (uint64_t number = 1; number <= victim->within; number++) {
        bw_delivery event;
        OK(bw_subscriber_next(subscriber, MINUTE, &event, &error));
        CHECK(event.kind == BW_EVENT && event.number == number);
        CHECK(is_message(event.event, victim->event_len, number, ~number, 0));
    }
    raise(END);
    bw_subscriber_free(subscriber);
}

static void burst(const struct victim *victim, bw_client *client)
{
    uint8_t requests[MAX_REQUESTS][SHORT];
    for (uint64_t at = 0; at < victim->requests; at++)
        write_message(requests[at], SHORT, victim->first + at, SHORT, victim->hold);
    raise(GATE);
    for (uint64_t at = 0; at < victim->requests; at++)
        OK(bw_client_submit(client, requests[at], SHORT, NULL, &error));
    for (uint64_t at = 0; at < victim->requests; at++) {
        bw_reply reply;
        OK(bw_client_wait_reply(client, MINUTE, &reply, &error));
        CHECK(reply.code == BW_OK && is_message(reply.answer, SHORT, ~(victim->first + at), 0, 0));
    }
    raise(END);
}

void bellwire_victim_client(const struct victim *victim)
{
    uint8_t request[LONG];
    bw_client *client = new_client(victim);
    write_message(request, SHORT, victim->number, SHORT, 0);
    call(client, request, SHORT, victim->number, SHORT);
    size_t len = victim->scenario == GROW ? LONG : SHORT;
    size_t answer = victim->scenario == FOLLOW ? LONG : SHORT;
    switch (victim->scenario) {
    case OPEN:
        bw_client_free(client);
        open_session(victim);
        return;
    case FETCH:
        fetch(victim);
        break;
    case SUBSCRIBE:
        subscribe(victim);
        break;
    case CLOSE:
        raise(GATE);
        bw_client_free(client);
        raise(END);
        return;
    case BURST:
        burst(victim, client);
        break;
    default:
        write_message(request, len, victim->first, answer, victim->hold);
        raise(GATE);
        call(client, request, len, victim->first, answer);
        raise(END);
    }
    bw_client_free(client);
}

static int handle(void *user, const bw_caller *caller, const void *request, size_t len, bw_answer *answer)
{
    uint64_t numbers[3];
    void *into;
    (void)caller;
    if (len < HEAD)
        return bw_answer_fail(answer, "no such request");
    memcpy(numbers, request, HEAD);
    bw_bytes bytes = {request, len};
    if (!is_message(bytes, len, numbers[0], numbers[1], numbers[2]) || numbers[1] > LONG || numbers[2] > 1)
        return bw_answer_fail(answer, "no such request");
    __atomic_store_n((uint64_t *)user, numbers[0], __ATOMIC_RELAXED);
    OK(bw_answer_reserve(answer, numbers[1], &into));
    write_message(into, numbers[1], ~numbers[0], 0, 0);
    return 0;
}

static void send_events(const struct victim *victim, bw_event_publisher *publisher, uint64_t from, uint64_t to)
{
    uint8_t event[EVENT_MOST];
    for (; publisher && from <= to; from++) {
        write_message(event, victim->event_len, from, ~from, 0);
        OK(bw_event_publisher_send(publisher, event, victim->event_len, NULL, &error));
    }
}

static void publish(bw_publisher *publisher, const uint64_t *words, size_t count)
{
    OK(bw_publisher_publish(publisher, words, count * sizeof *words, NULL, &error));
}

void bellwire_victim_server(const struct victim *victim)
{
    static uint64_t passed[2][PASSED_WORDS], ring[2][RING_WORDS];
    bw_contract calls = BW_CONTRACT("numbered-call", 1), snapshots = BW_CONTRACT("passed-snapshot", 1);
    bw_contract short_snapshots = BW_CONTRACT("ring-snapshot", 1), events = BW_CONTRACT("numbered-event", 1);
    bw_server_config config;
    bw_server_builder *builder;
    bw_server *server;
    bw_publisher *publisher, *ring_publisher = NULL;
    bw_event_publisher *event_publisher = NULL;
    for (uint64_t at = 0; at < 2; at++) {
        for (size_t word = 0; word < PASSED_WORDS; word++)
            passed[at][word] = victim->number + 1 + at;
        for (size_t word = 0; word < RING_WORDS; word++)
            ring[at][word] = victim->number + 1 + at;
    }
    bw_server_config_init(&config);
    config.spin_max_ns = 0;
    config.lane_size = 4096;
    config.token = NULL;
    if (victim->scenario == BIND)
        raise(GATE);
    OK(bw_server_builder_new(victim->dir, &config, &builder, &error));
    OK(bw_server_builder_serve(builder, &calls, handle, victim->ran, NULL, &error));
    OK(bw_server_builder_publish(builder, &snapshots, &publisher, &error));
    if (victim->scenario == BROADCAST)
        OK(bw_server_builder_publish(builder, &short_snapshots, &ring_publisher, &error));
    if (victim->scenario == EVENTS)
        OK(bw_server_builder_events(builder, &events, victim->ring, &event_publisher, &error));
    OK(bw_server_builder_start(builder, &server, &error));
    if (victim->scenario == BIND)
        raise(END);
    publish(publisher, passed[0], PASSED_WORDS);
    if (ring_publisher)
        publish(ring_publisher, ring[0], RING_WORDS);
    send_events(victim, event_publisher, 1, 1);
    /* The survivor connects here. */
    raise(GATE);
    if (victim->scenario == FETCH)
        publish(publisher, passed[1], PASSED_WORDS);
    send_events(victim, event_publisher, 2, victim->full);
    raise(GATE);
    send_events(victim, event_publisher, victim->full + 1, victim->full + victim->within);
    if (event_publisher) {
        uint64_t last = victim->full + victim->within + 1;
        OK(bw_event_publisher_set_depth(event_publisher, 2 * victim->ring, &error));
        send_events(victim, event_publisher, last, last);
    }
    if (ring_publisher)
        publish(ring_publisher, ring[1], RING_WORDS);
    if (victim->scenario == PUBLISH)
        publish(publisher, passed[1], PASSED_WORDS);
    if (victim->scenario == CLOSE)
        bw_server_stop(server);
    raise(END);
}
