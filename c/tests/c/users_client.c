/* Calls "sum" of a provider of another user: the arguments are the users that it trusts. Prints the code, the sentence,
 * and as which user it ran. */
#include "check.h"

#include <unistd.h>

int main(int argc, char **argv)
{
    bw_error error = BW_ERROR_INIT;
    bw_contract contract = BW_CONTRACT("sum", 1);
    bw_client *client = NULL;
    bw_client_config config;
    uint32_t trusted[8];
    CHECK(argc <= 8);
    for (int at = 1; at < argc; at++)
        trusted[at - 1] = (uint32_t)strtoul(argv[at], NULL, 10);
    bw_client_config_init(&config);
    config.trusted = trusted;
    config.trusted_len = (size_t)argc - 1;
    config.timeout_ns = config.connect_timeout_ns = 60 * SECOND;
    OK(bw_client_new(NULL, &contract, &config, &client, &error));
    bw_bytes answer;
    const uint32_t numbers[] = { 1, 2, 39 };
    int code = bw_client_call(client, numbers, sizeof numbers, BW_TIMEOUT_DEFAULT, &answer, &error);
    uint64_t sum = 0;
    if (code == BW_OK)
        memcpy(&sum, answer.data, sizeof sum);
    printf("%d %d %s as %u\n", code, (int)sum, code == BW_OK ? "" : error.message, (unsigned)geteuid());
    bw_client_free(client);
    return 0;
}
