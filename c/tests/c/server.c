/* Serves "sum" until it is killed: the sum of 32-bit numbers. The arguments are the users that it admits besides its own. */
#include "check.h"

#include <unistd.h>

static int sum(void *user, const bw_caller *caller, const void *request, size_t len, bw_answer *answer)
{
    (void)user;
    (void)caller;
    if (len % 4 != 0)
        return bw_answer_fail(answer, "the length is no multiple of 4");
    uint64_t total = 0;
    for (size_t at = 0; at < len; at += 4) {
        uint32_t number;
        memcpy(&number, (const char *)request + at, sizeof number);
        total += number;
    }
    return bw_answer_write(answer, &total, sizeof total);
}

int main(int argc, char **argv)
{
    bw_error error = BW_ERROR_INIT;
    bw_server_config config;
    uint32_t users[8];
    CHECK(argc <= 8);
    for (int at = 1; at < argc; at++)
        users[at - 1] = (uint32_t)strtoul(argv[at], NULL, 10);
    bw_server_config_init(&config);
    config.admit = argc > 1 ? BW_ADMIT_USERS : BW_ADMIT_SAME_USER;
    config.users = users;
    config.users_len = (size_t)argc - 1;
    bw_contract contract = BW_CONTRACT("sum", 1);
    bw_server_builder *builder = NULL;
    bw_server *server = NULL;
    OK(bw_server_builder_new(NULL, &config, &builder, &error));
    OK(bw_server_builder_serve(builder, &contract, sum, NULL, NULL, &error));
    OK(bw_server_builder_start(builder, &server, &error));
    puts("serving");
    fflush(stdout);
    for (;;)
        pause();
}
