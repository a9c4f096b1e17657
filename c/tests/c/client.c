/* Waits for "sum" and calls it, with requests short and long. */
#include "check.h"

int main(void)
{
    bw_error error = BW_ERROR_INIT;
    bw_contract contract = BW_CONTRACT("sum", 1);
    bw_client *client = NULL;
    OK(bw_client_new(NULL, &contract, NULL, &client, &error));
    OK(bw_client_wait_available(client, 60 * SECOND, &error));
    static uint32_t numbers[1 << 20];
    uint64_t expected = 0;
    for (uint32_t at = 0; at < 1 << 20; at++) {
        numbers[at] = at;
        expected += at;
        if ((at & (at + 1)) != 0)
            continue;
        bw_bytes answer;
        OK(bw_client_call(client, numbers, (at + 1) * sizeof *numbers, 60 * SECOND, &answer, &error));
        CHECK(answer.len == sizeof expected && memcmp(answer.data, &expected, sizeof expected) == 0);
    }
    bw_bytes answer;
    FAILS(BW_E_HANDLER, bw_client_call(client, "abc", 3, SECOND, &answer, &error));
    CHECK(strstr(error.message, "multiple of 4") != NULL);
    bw_client_free(client);
    return 0;
}
