/* In a steady state, calls, pipelined requests and posts allocate nothing, at either end. */
#include "check.h"

#include <stdatomic.h>

/* What glibc has below the functions that this program replaces. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *memory, size_t size);

static atomic_uint allocations;

void *malloc(size_t size)
{
    allocations++;
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    allocations++;
    return __libc_calloc(count, size);
}

void *realloc(void *memory, size_t size)
{
    allocations++;
    return __libc_realloc(memory, size);
}

static int echo(void *user, const bw_caller *caller, const void *request, size_t len, bw_answer *answer)
{
    (void)user;
    (void)caller;
    return bw_answer_write(answer, request, len);
}

static void turn(bw_client *client)
{
    bw_error error = BW_ERROR_INIT;
    bw_bytes answer;
    bw_reply reply;
    uint64_t ticket = 0;
    OK(bw_client_call(client, "abc", 3, BW_TIMEOUT_DEFAULT, &answer, &error));
    CHECK(answer.len == 3);
    for (int at = 0; at < 8; at++)
        OK(bw_client_submit(client, "abcd", 4, &ticket, &error));
    for (int at = 0; at < 8; at++)
        OK(bw_client_wait_reply(client, 10 * SECOND, &reply, &error));
    CHECK(reply.ticket == ticket && reply.answer.len == 4);
    OK(bw_client_post(client, "post", 4, &error));
    OK(bw_client_flush(client, 10 * SECOND, &error));
}

int main(void)
{
    bw_error error = BW_ERROR_INIT;
    bw_contract contract = BW_CONTRACT("echo", 1);
    bw_server_builder *builder = NULL;
    bw_server *server = NULL;
    bw_client *client = NULL;
    OK(bw_server_builder_new(NULL, NULL, &builder, &error));
    OK(bw_server_builder_serve(builder, &contract, echo, NULL, NULL, &error));
    OK(bw_server_builder_start(builder, &server, &error));
    OK(bw_client_new(NULL, &contract, NULL, &client, &error));
    OK(bw_client_wait_available(client, 10 * SECOND, &error));
    for (int at = 0; at < 1000; at++)
        turn(client);
    CHECK(allocations > 0);
    unsigned before = allocations;
    for (int at = 0; at < 1000; at++)
        turn(client);
    /* What the server's thread does at times, not for each request. */
    printf("%u allocations\n", allocations - before);
    CHECK(allocations - before < 100);
    bw_client_free(client);
    bw_server_stop(server);
    return 0;
}
