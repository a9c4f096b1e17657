/* Calls "increment", whose types have the fingerprint in the argument: for each digit of the input once, after so many
 * requests that nobody waits for. Prints the code and whose fault a failure is. */
#include "kill.h"

int main(int argc, char **argv)
{
    bw_contract contract = BW_CONTRACT("increment", 1);
    CHECK(argc == 2);
    contract.schema = strtoull(argv[1], NULL, 16);
    for (int requests; (requests = command(-1)) != -1;) {
        bw_error error = BW_ERROR_INIT;
        bw_client *client = NULL;
        bw_reply reply;
        bw_client_config config;
        bw_client_config_init(&config);
        config.lane_size = 4096;
        /* What a hostile provider does has to be noticed without a time-out. */
        config.timeout_ns = config.connect_timeout_ns = 60 * SECOND;
        OK(bw_client_new(NULL, &contract, &config, &client, &error));
        int code = bw_client_wait_available(client, 60 * SECOND, &error);
        if (code == BW_OK && requests == '0')
            code = bw_client_call(client, NULL, 0, BW_TIMEOUT_DEFAULT, &reply.answer, &error);
        for (; code == BW_OK && requests > '0'; requests--)
            code = bw_client_submit(client, NULL, 0, NULL, &error);
        while (code == BW_OK && requests == '0')
            code = bw_client_wait_reply(client, 60 * SECOND, &reply, &error);
        printf("%d %d\n", code, error.fault);
        fflush(stdout);
        bw_client_free(client);
    }
    return 0;
}
