/* Serves "increment", whose types have the fingerprint in the argument, and prints its counters when asked. */
#include "kill.h"

static int increment(void *user, const bw_caller *caller, const void *request, size_t len, bw_answer *answer)
{
    uint64_t number = 0;
    (void)user;
    (void)caller;
    memcpy(&number, request, len < sizeof number ? len : sizeof number);
    number++;
    return bw_answer_write(answer, &number, sizeof number);
}

int main(int argc, char **argv)
{
    bw_error error = BW_ERROR_INIT;
    bw_contract contract = BW_CONTRACT("increment", 1);
    bw_server_builder *builder = NULL;
    bw_server *server = NULL;
    CHECK(argc == 2);
    contract.schema = strtoull(argv[1], NULL, 16);
    OK(bw_server_builder_new(NULL, NULL, &builder, &error));
    OK(bw_server_builder_serve(builder, &contract, increment, NULL, NULL, &error));
    OK(bw_server_builder_start(builder, &server, &error));
    while (command(-1) != -1)
        report(server);
    bw_server_stop(server);
    return 0;
}
