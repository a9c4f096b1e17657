/* Calls a provider in Rust with messages of protobuf-c, which allocates them: one call for each line of its input. */
#include <bellwire.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "disk.pb-c.h"

static void ask(bw_client *client, char *name)
{
    bw_error error = BW_ERROR_INIT;
    bw_bytes answer;
    Disks__V1__Ask message = DISKS__V1__ASK__INIT;
    message.name = name;
    uint8_t *request = malloc(disks__v1__ask__get_packed_size(&message) + 1);
    if (request == NULL) {
        printf("no memory\n");
        return;
    }
    size_t len = disks__v1__ask__pack(&message, request);
    int code = bw_client_call(client, request, len, BW_TIMEOUT_DEFAULT, &answer, &error);
    free(request);
    if (code != BW_OK) {
        printf("%s\n", error.message);
        return;
    }
    /* It checks all of the bytes, which came from another process. */
    Disks__V1__Disk *disk = disks__v1__disk__unpack(NULL, answer.len, answer.data);
    if (disk != NULL)
        printf("%s: %" PRIu64 " reads, %" PRIu64 " writes\n", disk->name, disk->reads, disk->writes);
    else
        printf("the answer is no disk\n");
    disks__v1__disk__free_unpacked(disk, NULL);
}

int main(void)
{
    bw_error error = BW_ERROR_INIT;
    bw_contract contract = BW_CONTRACT("disk-proto", 1);
    contract.schema = bw_schema("proto:disks.v1.Ask -> proto:disks.v1.Disk");
    contract.flags = BW_CONTRACT_IDEMPOTENT;
    bw_client *client = NULL;
    char name[64];
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
