/* What the programs share that are killed, or meet a hostile peer: see kill.rs and wire.rs. */
#include "check.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

/* The most bytes of a message: more than a lane holds by default, so that lanes grow and memory is attached. */
#define MOST (1 << 20)

/* A message: its number, its length, and bytes that follow from both. */
struct message {
    uint64_t number;
    uint64_t len;
    unsigned char bytes[MOST];
};

/* The newest request whose handler ran. It is in a file, and so outlives the provider. */
static _Atomic uint64_t *handled;

static inline unsigned char byte_at(uint64_t number, size_t at)
{
    return (unsigned char)((number * 31 + at) * 131 >> 3);
}

static inline size_t fill(struct message *message, uint64_t number, size_t len)
{
    message->number = number;
    message->len = len;
    for (size_t at = 0; at < len; at++)
        message->bytes[at] = byte_at(number, at);
    return offsetof(struct message, bytes) + len;
}

/* Checks a message that came, whole, and returns its number. */
static inline uint64_t number_of(const void *data, size_t len)
{
    static _Thread_local struct message message;
    CHECK(len >= offsetof(struct message, bytes) && len <= sizeof message);
    memcpy(&message, data, len);
    CHECK(message.len == len - offsetof(struct message, bytes));
    for (size_t at = 0; at < message.len; at++)
        CHECK(message.bytes[at] == byte_at(message.number, at));
    return message.number;
}

/* Waits for a command of the test, at most so many milliseconds: 0 for none, -1 when the test wants an end. */
static inline int command(int milliseconds)
{
    struct pollfd input = { STDIN_FILENO, POLLIN, 0 };
    char byte = 0;
    if (poll(&input, 1, milliseconds) <= 0)
        return 0;
    return read(STDIN_FILENO, &byte, 1) == 1 ? byte : -1;
}

static inline int open_descriptors(void)
{
    int count = 0;
    DIR *directory = opendir("/proc/self/fd");
    CHECK(directory);
    while (readdir(directory))
        count++;
    closedir(directory);
    return count;
}

static inline int shared_maps(void)
{
    int count = 0;
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps);
    while (fgets(line, sizeof line, maps))
        count += strstr(line, "memfd:") != NULL;
    fclose(maps);
    return count;
}

static inline void map_handled(const char *path)
{
    int file = open(path, O_RDWR);
    CHECK(file >= 0);
    void *memory = mmap(NULL, sizeof *handled, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(memory != MAP_FAILED);
    handled = memory;
    close(file);
}

/* Prints sessions, and those poisoned. */
static inline void report(const bw_server *server)
{
    bw_error error = BW_ERROR_INIT;
    bw_server_stats stats = { .size = sizeof stats };
    OK(bw_server_get_stats(server, &stats, &error));
    printf("%llu %llu\n", (unsigned long long)stats.sessions, (unsigned long long)stats.poisoned);
    fflush(stdout);
}
