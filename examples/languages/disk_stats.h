/* Made by bellwire_codec::c_header. Little-endian. */
#ifndef DISK_STATS_H
#define DISK_STATS_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct disk {
    uint32_t name_len; /* in the tail: UTF-8 */
    uint64_t reads;
    uint64_t writes;
};
static_assert(offsetof(struct disk, name_len) == 0, "Disk.name");
static_assert(offsetof(struct disk, reads) == 8, "Disk.reads");
static_assert(offsetof(struct disk, writes) == 16, "Disk.writes");
static_assert(sizeof(struct disk) == 24, "Disk");


#endif
