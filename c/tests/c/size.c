/* A program that only calls, or with EMPTY one that does nothing: what the static library adds is measured. */
#include "check.h"

#ifdef EMPTY
int main(void)
{
    return 0;
}
#else
int main(void)
{
    bw_error error = BW_ERROR_INIT;
    bw_contract contract = BW_CONTRACT("sum", 1);
    bw_client *client = NULL;
    bw_bytes answer;
    OK(bw_client_new(NULL, &contract, NULL, &client, &error));
    OK(bw_client_call(client, "abcd", 4, BW_TIMEOUT_DEFAULT, &answer, &error));
    bw_client_free(client);
    return 0;
}
#endif
