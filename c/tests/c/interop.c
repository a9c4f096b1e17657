/* The C end of the tests between languages: a server, and a client for each row of the table in docs/interop.md.
 * examples/interop.rs is the same in Rust. */
#include "kill.h"

#define LONG (20 * SECOND)
#define SMALL 251

static const char *const echo_service = "interop-echo", *const typed_service = "interop-typed";
static const char *const snapshot_service = "interop-clock", *const event_service = "interop-news";
/* Of the vectors, with the fingerprint of their HELLO. */
static const char *const vector_service = "increment";
static const uint64_t vector_schema = 0x0123456789abcdef;
static bw_client_config config;
static bw_error error = BW_ERROR_INIT;


/* Bytes of which every one depends on number, which is in the first eight. */
static unsigned char *pattern(uint64_t number, size_t len)
{
    static unsigned char bytes[64 << 20];
    CHECK(len <= sizeof bytes);
    for (size_t at = 0; at < len && at < SMALL; at++)
        bytes[at] = (unsigned char)(at ^ (number & 255));
    for (size_t have = SMALL; have < len; have *= 2)
        memcpy(bytes + have, bytes, have < len - have ? have : len - have);
    if (len >= sizeof number)
        memcpy(bytes, &number, sizeof number);
    return bytes;
}

/* Snapshots of 16 bytes to 100 000 cgroups' worth. */
static size_t length_of(uint64_t number)
{
    static const size_t lengths[] = { 16, 1000, 100000, 300000 };
    return number % 40 == 39 ? 12000000 : lengths[number % 4];
}

static _Atomic uint64_t posted;

static int echo(void *user, const bw_caller *caller, const void *request, size_t len, bw_answer *answer)
{
    uint64_t count = posted;
    uint32_t pid = (uint32_t)getpid();
    (void)user;
    (void)caller;
    if (len == 4 && memcmp(request, "fail", len) == 0)
        return bw_answer_fail(answer, "as asked") == BW_OK ? 404 : 1;
    if (len == 1 && *(const char *)request == '+')
        posted++;
    else if (len == 3 && memcmp(request, "pid", len) == 0)
        return bw_answer_write(answer, &pid, sizeof pid);
    else if (len == 5 && memcmp(request, "count", len) == 0)
        return bw_answer_write(answer, &count, sizeof count);
    else if (len == 5 && memcmp(request, "sleep", len) == 0)
        poll(NULL, 0, 300);
    return bw_answer_write(answer, request, len);
}

static void serve(void)
{
    bw_contract calls = BW_CONTRACT(echo_service, 1), typed = BW_CONTRACT(typed_service, 1), increment = BW_CONTRACT(vector_service, 1);
    bw_contract snapshots = BW_CONTRACT(snapshot_service, 1), events = BW_CONTRACT(event_service, 1);
    bw_server_config with;
    bw_server_builder *builder = NULL;
    bw_server *server = NULL;
    bw_publisher *clock = NULL;
    bw_event_publisher *news = NULL;
    bw_server_config_init(&with);
    with.workers = 2; /* A request may sleep: the others go on. */
    typed.schema = bw_schema("bytes -> bytes");
    increment.schema = vector_schema;
    OK(bw_server_builder_new(NULL, &with, &builder, &error));
    OK(bw_server_builder_serve(builder, &calls, echo, NULL, NULL, &error));
    OK(bw_server_builder_serve(builder, &typed, echo, NULL, NULL, &error));
    OK(bw_server_builder_serve(builder, &increment, echo, NULL, NULL, &error));
    OK(bw_server_builder_publish(builder, &snapshots, &clock, &error));
    OK(bw_server_builder_events(builder, &events, 64 << 10, &news, &error));
    OK(bw_server_builder_start(builder, &server, &error));
    puts("ready");
    fflush(stdout);
    int pause = 0;
    /* Until its input ends, or it is killed. */
    for (uint64_t number = 1; command(pause) != -1; number++) {
        size_t len = length_of(number);
        OK(bw_publisher_publish(clock, pattern(number, len), len, NULL, &error));
        OK(bw_event_publisher_send(news, &number, sizeof number, NULL, &error));
        pause = len > 1 << 20 ? 20 : 2;
    }
}

static bw_client *client_of(const char *service, uint32_t version, uint64_t schema)
{
    bw_client *client = NULL;
    bw_contract contract = BW_CONTRACT(service, version);
    contract.schema = schema;
    OK(bw_client_new(NULL, &contract, &config, &client, &error));
    return client;
}

static void call(bw_client *client, size_t len)
{
    bw_bytes answer;
    const unsigned char *request = pattern(len, len);
    OK(bw_client_call(client, request, len, LONG, &answer, &error));
    CHECK(answer.len == len && memcmp(answer.data, request, len) == 0);
}

static void calls(bw_client *client)
{
    static const size_t lengths[] = { 0, 1, 16, 2000, 8145, 100000, 1 << 20, 5 << 20 };
    bw_bytes answer;
    for (size_t at = 0; at < sizeof lengths / sizeof *lengths; at++)
        call(client, lengths[at]);
    FAILS(BW_E_HANDLER, bw_client_call(client, "fail", 4, LONG, &answer, &error));
    CHECK(strstr(error.message, "as asked") && error.handler_code == 404);
}

static void largest(bw_client *client)
{
    call(client, (64 << 20) - 64);
}

static void pipeline(bw_client *client)
{
    enum { REQUESTS = 20000 };
    static uint64_t tickets[REQUESTS];
    static char answered[REQUESTS];
    uint64_t sent = 0, number;
    for (int answers = 0; answers < REQUESTS; answers++) {
        /* As many as there is room for, and then an answer. */
        while (sent < REQUESTS) {
            int code = bw_client_submit(client, &sent, sizeof sent, &tickets[sent], &error);
            if (code == BW_E_WOULD_BLOCK)
                break;
            OK(code);
            sent++;
        }
        bw_reply reply;
        OK(bw_client_wait_reply(client, LONG, &reply, &error));
        OK(reply.code);
        CHECK(reply.answer.len == sizeof number);
        memcpy(&number, reply.answer.data, sizeof number);
        CHECK(number < sent && tickets[number] == reply.ticket && !answered[number]);
        answered[number] = 1;
    }
}

static void batches(bw_client *client)
{
    enum { ITEMS = 1000 };
    static unsigned char bytes[ITEMS][108];
    bw_bytes requests[ITEMS], answer;
    for (size_t at = 0; at < ITEMS; at++) {
        requests[at] = (bw_bytes){ bytes[at], 8 + at % 100 };
        memcpy(bytes[at], pattern(at, requests[at].len), requests[at].len);
    }
    OK(bw_client_call_batch(client, requests, ITEMS, &error));
    for (size_t at = 0; at < ITEMS; at++) {
        OK(bw_client_batch_next(client, &answer, &error));
        CHECK(answer.len == requests[at].len && memcmp(answer.data, bytes[at], answer.len) == 0);
    }
    FAILS(BW_E_WOULD_BLOCK, bw_client_batch_next(client, &answer, &error));
}

static uint64_t count_of(bw_client *client)
{
    bw_bytes answer;
    uint64_t count;
    OK(bw_client_call(client, "count", 5, LONG, &answer, &error));
    CHECK(answer.len == sizeof count);
    memcpy(&count, answer.data, sizeof count);
    return count;
}

static void posts(bw_client *client)
{
    uint64_t before = count_of(client);
    for (int post = 0; post < 10000; post++)
        OK(bw_client_post(client, "+", 1, &error));
    OK(bw_client_flush(client, LONG, &error));
    /* Taken is not handled, where there are workers. */
    while (count_of(client) != before + 10000)
        ;
}

static void resize(bw_client *client)
{
    for (int round = 0; round < 3; round++) {
        call(client, 900000);
        OK(bw_client_trim(client, &error));
        call(client, 10);
    }
}

static void cancel(bw_client *client)
{
    uint64_t ticket;
    int was_in_flight = 0;
    OK(bw_client_submit(client, "sleep", 5, &ticket, &error));
    OK(bw_client_abandon(client, ticket, &was_in_flight, &error));
    CHECK(was_in_flight);
    call(client, 100);
}

static void deadlines(bw_client *client)
{
    bw_bytes answer;
    FAILS(BW_E_DEADLINE, bw_client_call(client, "sleep", 5, 30000000, &answer, &error));
    call(client, 100);
}

static void fingerprint(bw_client *client)
{
    bw_bytes answer;
    bw_client *right = client_of(typed_service, 1, bw_schema("bytes -> bytes"));
    bw_client *wrong = client_of(typed_service, 1, bw_schema("bytes -> text"));
    (void)client;
    OK(bw_client_call(right, "r", 1, LONG, &answer, &error));
    CHECK(answer.len == 1);
    FAILS(BW_E_INCOMPATIBLE, bw_client_call(wrong, "w", 1, LONG, &answer, &error));
    bw_client_free(right);
    bw_client_free(wrong);
}

static void version(bw_client *client)
{
    bw_bytes answer;
    bw_client *other = client_of(echo_service, 9, 0);
    (void)client;
    FAILS(BW_E_REFUSED, bw_client_call(other, "m", 1, LONG, &answer, &error));
    bw_client_free(other);
}

/* Meets a provider that opens no session. */
static void vectors(bw_client *client)
{
    bw_bytes answer;
    bw_client *increment = client_of(vector_service, 1, vector_schema);
    (void)client;
    int code = bw_client_call(increment, "v", 1, LONG, &answer, &error);
    if ((code != BW_E_PROTOCOL_VIOLATION || error.fault != BW_FAULT_PEER) && code != BW_E_INCOMPATIBLE) {
        fprintf(stderr, "not the provider's fault: %d, %s\n", code, error.message);
        exit(1);
    }
    bw_client_free(increment);
}

static void snapshots(bw_client *client)
{
    bw_contract contract = BW_CONTRACT(snapshot_service, 1);
    bw_cache *cache = NULL;
    int lengths = 0;
    (void)client;
    OK(bw_cache_new(NULL, &contract, &config, &cache, &error));
    for (int seen = 0; lengths != 31;) {
        bw_snapshot now;
        uint64_t number;
        CHECK(seen++ < 20000);
        OK(bw_cache_wait(cache, SECOND / 10, NULL, &error));
        if (bw_cache_current(cache, &now, &error) != BW_OK)
            continue;
        CHECK(now.bytes.len >= sizeof number);
        memcpy(&number, now.bytes.data, sizeof number);
        CHECK(number == now.generation && now.bytes.len == length_of(number));
        CHECK(memcmp(now.bytes.data, pattern(number, now.bytes.len), now.bytes.len) == 0);
        lengths |= 1 << (number % 40 == 39 ? 4 : number % 4);
    }
    bw_cache_free(cache);
}

static void events(bw_client *client)
{
    bw_contract contract = BW_CONTRACT(event_service, 1);
    bw_subscriber *subscriber = NULL;
    uint64_t last = 0, number;
    (void)client;
    OK(bw_subscriber_new(NULL, &contract, BW_START_OLDEST, &config, &subscriber, &error));
    for (int count = 0; count < 200;) {
        bw_delivery delivery;
        OK(bw_subscriber_next(subscriber, LONG, &delivery, &error));
        CHECK(delivery.kind != BW_RESTARTED);
        if (delivery.kind == BW_MISSED) {
            last += delivery.number;
            continue;
        }
        CHECK(delivery.event.len == sizeof number);
        memcpy(&number, delivery.event.data, sizeof number);
        CHECK(number == delivery.number && (last == 0 || number == last + 1));
        last = number;
        count++;
    }
    bw_subscriber_free(subscriber);
}

/* Calls until another provider has answered 500 calls. None has to fail meanwhile: a call that was not taken is repeated. */
static void restart(bw_client *client)
{
    bw_bytes answer;
    uint32_t first, pid;
    OK(bw_client_call(client, "pid", 3, LONG, &answer, &error));
    memcpy(&first, answer.data, sizeof first);
    puts("called");
    fflush(stdout);
    for (int answers = 0; answers < 500;) {
        if (bw_client_call(client, "pid", 3, LONG, &answer, &error) != BW_OK) {
            answers = 0;
            continue;
        }
        CHECK(answer.len == sizeof pid);
        memcpy(&pid, answer.data, sizeof pid);
        answers += pid != first;
    }
}

static void forever(bw_client *client)
{
    for (;;)
        call(client, 100000);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*play)(bw_client *client);
    } scenarios[] = {
        { "calls", calls },         { "pipeline", pipeline },       { "batches", batches }, { "posts", posts },
        { "events", events },       { "snapshots", snapshots },     { "resize", resize },   { "cancel", cancel },
        { "deadlines", deadlines }, { "fingerprint", fingerprint }, { "version", version }, { "restart", restart },
        { "forever", forever },     { "vectors", vectors },
        { "largest", largest },
    };
    static const char *const doorbells[] = { "", "futex", "eventfd", "socket" };
    CHECK(argc == 3);
    bw_client_config_init(&config);
    config.timeout_ns = LONG;
    for (uint32_t bell = BW_DOORBELL_FUTEX; bell <= BW_DOORBELL_SOCKET; bell++)
        if (strcmp(argv[2], doorbells[bell]) == 0)
            config.doorbell = bell;
    if (strcmp(argv[1], "serve") == 0) {
        serve();
        return 0;
    }
    for (size_t at = 0; at < sizeof scenarios / sizeof *scenarios; at++) {
        if (strcmp(argv[1], scenarios[at].name) != 0)
            continue;
        bw_client *client = client_of(echo_service, 1, 0);
        scenarios[at].play(client);
        bw_client_free(client);
        puts("ok");
        return 0;
    }
    fprintf(stderr, "no scenario %s\n", argv[1]);
    return 2;
}
