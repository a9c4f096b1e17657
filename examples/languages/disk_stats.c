/* The consumer of docs/tutorial.md in C: asks for one disk, or counts all of them and waits for new ones. */
#include <bellwire.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "disk_stats.h"

#define NO_SUCH_DISK 1

static int failed(const char *reason)
{
    fprintf(stderr, "%s\n", reason);
    return 1;
}

/* Takes a disk from a message, of which nothing is known but its length. Returns its name, or NULL. */
static const char *take(bw_bytes message, struct disk *disk)
{
    if (message.len < sizeof *disk)
        return NULL;
    memcpy(disk, message.data, sizeof *disk);
    return disk->name_len == message.len - sizeof *disk ? (const char *)message.data + sizeof *disk : NULL;
}

static int ask(const char *name)
{
    bw_error error = BW_ERROR_INIT;
    bw_contract contract = BW_CONTRACT("disk-stats", 1);
    contract.flags = BW_CONTRACT_IDEMPOTENT;
    /* A provider whose types are others refuses this client. */
    contract.schema = bw_schema("str -> {name:str,reads:u64,writes:u64}");
    bw_client *client = NULL;
    bw_bytes answer;
    struct disk disk;
    if (bw_client_new(NULL, &contract, NULL, &client, &error) != BW_OK)
        return failed(error.message);
    int code = bw_client_call(client, name, strlen(name), 500 * 1000 * 1000, &answer, &error);
    int status = 0;
    if (code == BW_OK && take(answer, &disk) != NULL)
        printf("%s: %" PRIu64 " reads, %" PRIu64 " writes\n", name, disk.reads, disk.writes);
    else if (code == BW_E_HANDLER && error.handler_code == NO_SUCH_DISK)
        printf("no disk %s\n", name);
    else
        status = failed(code == BW_OK ? "the answer is no disk" : error.message);
    bw_client_free(client);
    return status;
}

static int follow(void)
{
    bw_error error = BW_ERROR_INIT;
    bw_contract list = BW_CONTRACT("disk-list", 1), appeared = BW_CONTRACT("disk-appeared", 1);
    bw_cache *cache = NULL;
    bw_subscriber *subscriber = NULL;
    bw_snapshot all;
    bw_delivery next;
    uint32_t count = 0;
    if (bw_cache_new(NULL, &list, NULL, &cache, &error) != BW_OK ||
        bw_cache_wait(cache, 2ull * 1000 * 1000 * 1000, NULL, &error) != BW_OK)
        return failed(error.message);
    /* The list begins with the number of its disks. */
    if (bw_cache_current(cache, &all, NULL) == BW_OK && all.bytes.len >= sizeof count)
        memcpy(&count, all.bytes.data, sizeof count);
    printf("%" PRIu32 " disks\n", count);
    fflush(stdout);
    bw_cache_free(cache);
    if (bw_subscriber_new(NULL, &appeared, BW_START_OLDEST, NULL, &subscriber, &error) != BW_OK)
        return failed(error.message);
    while (bw_subscriber_next(subscriber, BW_FOREVER, &next, &error) == BW_OK) {
        struct disk disk;
        const char *name = next.kind == BW_EVENT ? take(next.event, &disk) : NULL;
        if (name != NULL)
            printf("%.*s appeared\n", (int)disk.name_len, name);
        else if (next.kind == BW_MISSED)
            printf("%" PRIu64 " more appeared\n", next.number);
        fflush(stdout);
    }
    bw_subscriber_free(subscriber);
    return failed(error.message);
}

int main(int argc, char **argv)
{
    return argc > 1 ? ask(argv[1]) : follow();
}
