/* Calls a provider in Rust with messages of nanopb, which allocates nothing: one call for each line of its input. */
#include <bellwire.h>
#include <inttypes.h>
#include <pb_decode.h>
#include <pb_encode.h>
#include <stdio.h>
#include <string.h>

#include "disk.pb.h"

static void ask(bw_client *client, const char *name)
{
    bw_error error = BW_ERROR_INIT;
    bw_bytes answer;
    disks_v1_Ask message = disks_v1_Ask_init_zero;
    disks_v1_Disk disk = disks_v1_Disk_init_zero;
    uint8_t request[disks_v1_Ask_size];
    pb_ostream_t into = pb_ostream_from_buffer(request, sizeof request);
    snprintf(message.name, sizeof message.name, "%s", name);
    if (!pb_encode(&into, disks_v1_Ask_fields, &message)) {
        printf("no request: %s\n", PB_GET_ERROR(&into));
        return;
    }
    if (bw_client_call(client, request, into.bytes_written, BW_TIMEOUT_DEFAULT, &answer, &error) != BW_OK) {
        printf("%s\n", error.message);
        return;
    }
    /* It checks all of the bytes, which came from another process. */
    pb_istream_t from = pb_istream_from_buffer(answer.data, answer.len);
    if (pb_decode(&from, disks_v1_Disk_fields, &disk))
        printf("%s: %" PRIu64 " reads, %" PRIu64 " writes\n", disk.name, disk.reads, disk.writes);
    else
        printf("the answer is no disk: %s\n", PB_GET_ERROR(&from));
}

int main(void)
{
    bw_error error = BW_ERROR_INIT;
    bw_contract contract = BW_CONTRACT("disk-proto", 1);
    contract.schema = bw_schema("proto:disks.v1.Ask -> proto:disks.v1.Disk");
    contract.flags = BW_CONTRACT_IDEMPOTENT;
    bw_client *client = NULL;
    char name[sizeof((disks_v1_Ask *)0)->name];
    if (bw_client_new(NULL, &contract, NULL, &client, &error) != BW_OK) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    while (fgets(name, sizeof name, stdin) != NULL) {
        name[strcspn(name, "\n")] = '\0';
        /* It finds the provider's successor by itself. */
        ask(client, name);
        fflush(stdout);
    }
    bw_client_free(client);
    return 0;
}
