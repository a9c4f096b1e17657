/* What the harness tells a victim in C: as `Victim` in ../c.rs. */
#include <stdint.h>

/* As `Scenario` in ../../phase.rs. No victim in C runs ATTACH or OVERRUN. */
enum scenario {
    BIND, OPEN, CALL, EVENTFD, SOCKET, BURST, GROW, FOLLOW, ATTACH, PUBLISH, BROADCAST, EVENTS, OVERRUN, SUBSCRIBE, FETCH, CLOSE
};

struct victim {
    const char *dir;
    uint64_t number, first, requests, hold;
    /* Events: the bytes of the ring and of one, how many fill the ring, and how many are sent over them. */
    uint64_t ring, event_len, full, within;
    /* Where a handler notes the number of its request. */
    uint64_t *ran;
    uint32_t doorbell;
    enum scenario scenario;
};

/* Lengths of messages in bytes, and of snapshots in words: as in ../../service.rs. */
#define SHORT 40
#define LONG 2100
#define EVENT_MOST 512
#define MAX_REQUESTS 8
#define PASSED_WORDS 33000
#define RING_WORDS 16

void bellwire_victim_client(const struct victim *victim);
void bellwire_victim_server(const struct victim *victim);
