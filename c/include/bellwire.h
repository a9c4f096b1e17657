/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * libbellwire: calls and snapshots between the processes of one machine.
 *
 * Functions return BW_OK (0) or one of BW_E_…, and then fill in the `bw_error` passed last, if it is not NULL. Nothing is
 * written to other out-parameters then. No function aborts the process, and no panic crosses the API; after BW_E_PANIC, only
 * free the object.
 *
 * Threads: an object may move between threads, but only one may use it at a time, unless its function says otherwise.
 * Objects share nothing.
 *
 * A struct that begins with `size` may get fields at its end in later versions; 0 in a field that was added means what the library did
 * before. A program and a library of different versions work together: `size` is sizeof the struct in the program's header, at least
 * that of the first version, at most 4096. Where the library reads the struct, fields that the program lacks are 0, and bytes that the
 * library does not know must be 0, or the function fails with BW_E_INVALID. Where it writes the struct, it writes `size` bytes, and 0 in those
 * that it does not know; `size` stays. It writes nothing to a bw_error whose size is not allowed.
 *
 * What a program passes is checked as far as it can be: NULL, the size of a struct, a length that memory cannot have, and numbers out of
 * range are BW_E_INVALID. Undefined, as in C: an object or lent bytes after they were freed, a pointer or a length that is wrong in
 * another way, and an exception, a longjmp or a pthread_exit that leaves a callback.
 *
 * fork: an object belongs to the process that created it. In a child it fails with BW_E_FORKED, and freeing it there does
 * nothing to the parent's.
 *
 * Times are in nanoseconds. Texts of the library's structs are UTF-8, not terminated, and as long as they say; texts that
 * are passed in are terminated.
 */

#ifndef BELLWIRE_H
#define BELLWIRE_H

/* Generated from c/src by cbindgen; `cargo test -p bellwire-c` compares. Do not edit. */

#include <stddef.h>
#include <stdint.h>

/* bw_error error = BW_ERROR_INIT; */
#define BW_ERROR_INIT { sizeof(bw_error), 0, 0, 0, 0, "" }

/* bw_contract contract = BW_CONTRACT("service", 1); */
#define BW_CONTRACT(service, version) { sizeof(bw_contract), service, version, 0, 0 }

// The version of this header: major.
#define BW_VERSION_MAJOR 0

// Minor.
#define BW_VERSION_MINOR 1

// Patch.
#define BW_VERSION_PATCH 0

// Nothing newer has been published.
#define BW_UNCHANGED 0

// There is a newer snapshot now.
#define BW_CHANGED 1

// Requested; not arrived yet.
#define BW_PENDING 2

// The provider is there and has published nothing yet.
#define BW_EMPTY 3

// The provider is absent or does not answer; the last good snapshot stays.
#define BW_UNAVAILABLE 4

// As a timeout of bw_cache_wait: none.
#define BW_FOREVER UINT64_MAX

// In bw_cgroup.options: the root of the hierarchy.
#define BW_CGROUP_ROOT 1

// Of the unified hierarchy (v2).
#define BW_CGROUP_UNIFIED 2

// Of a v1 hierarchy.
#define BW_CGROUP_LEGACY 4

// There are processes in it or below.
#define BW_CGROUP_POPULATED 8

// It has no children.
#define BW_CGROUP_LEAF 16

// A systemd service.
#define BW_CGROUP_SYSTEM_SERVICE 32

// Below a container.
#define BW_CGROUP_NESTED 64

// Of the hierarchy that is not the primary one, on a hybrid machine: its id is not that of
// bpf_get_current_cgroup_id.
#define BW_CGROUP_SECONDARY 128

// Its provider waits for its name: the name is made from the path, and may change.
#define BW_CGROUP_PENDING 256

// No provider listens.
#define BW_STATE_ABSENT 0

// A session is being opened.
#define BW_STATE_CONNECTING 1

// A session is open.
#define BW_STATE_READY 2

// The provider refused this client, or the session could not be opened: bw_client_check says why.
#define BW_STATE_FAILED 3

// As a timeout: the configured one.
#define BW_TIMEOUT_DEFAULT UINT64_MAX

// A request may run twice: a call whose provider went away is sent again, to its successor.
#define BW_CONTRACT_IDEMPOTENT 1

// The provider wakes this end by a futex: the fastest for a thread that blocks in a call.
#define BW_DOORBELL_FUTEX 1

// By an eventfd: for event loops, with bw_client_fd. One descriptor more.
#define BW_DOORBELL_EVENTFD 2

// By a byte on the control socket: for event loops where descriptors are scarce.
#define BW_DOORBELL_SOCKET 3

// A full lane: calls wait, bw_client_submit fails; the lane grows when it is often full.
#define BW_BACKPRESSURE_ADAPT 0

// Waits for room; the lane keeps its size.
#define BW_BACKPRESSURE_WAIT 1

// Fails with BW_E_WOULD_BLOCK.
#define BW_BACKPRESSURE_FAIL 2

// The lane doubles each time it is full, up to its limits.
#define BW_BACKPRESSURE_GROW 3

// Admits the server's own user and root.
#define BW_ADMIT_SAME_USER 0

// And the members of a group.
#define BW_ADMIT_GROUP 1

// And the users in a list.
#define BW_ADMIT_USERS 2

// And any other user.
#define BW_ADMIT_ANY 3

// Success.
#define BW_OK 0

// No provider of the service listens.
#define BW_E_ABSENT 1

// The provider refused this client.
#define BW_E_REFUSED 2

// The two ends differ in protocol version or in the service's types.
#define BW_E_INCOMPATIBLE 3

// The message exceeds a limit.
#define BW_E_TOO_LARGE 4

// The lane is full, or nothing has arrived, and the caller did not want to wait; or the provider is at capacity, or has published
// nothing yet.
#define BW_E_WOULD_BLOCK 5

// The deadline passed.
#define BW_E_DEADLINE 6

// Another thread cancelled.
#define BW_E_CANCELLED 7

// The provider's process ended or closed the session.
#define BW_E_PEER_GONE 8

// The provider violated the protocol.
#define BW_E_PROTOCOL_VIOLATION 9

// The provider's handler answered with an error.
#define BW_E_HANDLER 10

// A message could not be decoded.
#define BW_E_MALFORMED 11

// A system call failed, or a resource is missing.
#define BW_E_SYSTEM 12

// The provider is stopping.
#define BW_E_STOPPING 13

// The provider closed the session because this end took nothing for too long.
#define BW_E_STALLED 14

// The object belongs to the process that this one was forked from.
#define BW_E_FORKED 15

// An argument is NULL, too short, out of range, or not UTF-8, or the object's configuration excludes the function: a mistake of
// the calling program.
#define BW_E_INVALID 100

// The library failed in a way that is a bug in it. Free the object; the process goes on.
#define BW_E_PANIC 101

// The caller has to act: its request, its configuration, or its deadline.
#define BW_FAULT_CALLER 0

// The process at the other end.
#define BW_FAULT_PEER 1

// This machine: a limit, a missing kernel feature, a full disk.
#define BW_FAULT_SYSTEM 2

// Nobody: the service is absent now, or the caller cancelled.
#define BW_FAULT_NOBODY 3

// An event.
#define BW_EVENT 1

// This subscriber was too slow: events were overwritten; `number` has their count.
#define BW_MISSED 2

// Another publisher has taken over and counts from 1 again.
#define BW_RESTARTED 3

// A subscriber starts with the next event.
#define BW_START_NOW 0

// With the oldest event that the provider keeps.
#define BW_START_OLDEST 1

// It is described.
#define BW_LOOKUP_KNOWN 1

// Nothing yet: ask again later.
#define BW_LOOKUP_RETRY_LATER 2

// It does not exist, or no longer does.
#define BW_LOOKUP_UNKNOWN 3

// The description does not fit in one answer.
#define BW_LOOKUP_TOO_LARGE 4

// The answer of a handler, while it runs.
typedef struct bw_answer bw_answer;

// Asks the service apps-lookup about processes. By one thread at a time.
typedef struct bw_apps bw_apps;

// The newest snapshot of one service, which stays when the provider goes. It starts no thread. By one thread at a time.
typedef struct bw_cache bw_cache;

// The caller of the running handler.
typedef struct bw_caller bw_caller;

// Ends a client's waits from other threads. Any number of threads may use it at once.
typedef struct bw_canceller bw_canceller;

// Asks the service cgroups-lookup about cgroups. By one thread at a time.
typedef struct bw_cgroup_lookup bw_cgroup_lookup;

// All cgroups of the machine, as the service cgroups-snapshot publishes them. By one thread at a time.
typedef struct bw_cgroups bw_cgroups;

// A client of one service, whose provider may be absent, late or restarted. It starts no thread. By one thread at a time.
typedef struct bw_client bw_client;

// Publishes the events of one service; it never waits for a subscriber. Any number of threads may use it at once.
typedef struct bw_event_publisher bw_event_publisher;

// Bytes, few or many: below 32 MiB private memory, above a sealed memfd that every receiver maps, without a copy. It does
// not change any more. Any number of threads may read it.
typedef struct bw_payload bw_payload;

// Publishes the snapshots of one service. Any number of threads may use it at once.
typedef struct bw_publisher bw_publisher;

// A server that runs: one thread for all sessions, and the configured workers. Any number of threads may ask for its
// counters at once.
typedef struct bw_server bw_server;

// A server that is being set up. By one thread at a time.
typedef struct bw_server_builder bw_server_builder;

// Receives the events of one service, each in order, or the exact count of those that it missed. By one thread at a time.
typedef struct bw_subscriber bw_subscriber;

// What both ends of a service agree on, besides the bytes of its messages.
typedef struct bw_contract {
  // sizeof(bw_contract), set by the caller: BW_CONTRACT does.
  size_t size;
  // The service's name: 1 to 63 of a-z, 0-9 and -, beginning with a letter.
  const char *service;
  // The version of its types: from 1; both ends have the same, or the client is refused.
  uint32_t version;
  // 0 or BW_CONTRACT_IDEMPOTENT.
  uint32_t flags;
  // A fingerprint of its types, 0 for none: two that differ meet BW_E_INCOMPATIBLE. bw_schema makes one of a text.
  uint64_t schema;
} bw_contract;

// The configuration of a client. Fill it with bw_client_config_init, then change what should differ.
typedef struct bw_client_config {
  // sizeof(bw_client_config), set by bw_client_config_init.
  size_t size;
  // How long a call waits for its answer where it has no time of its own. Default: 5 s.
  uint64_t timeout_ns;
  // How long opening a session may take. Default: 2 s.
  uint64_t connect_timeout_ns;
  // The longest spin before a thread sleeps, at most 1 ms; 0 never spins. Default: 60 µs, less where it does not pay.
  uint64_t spin_max_ns;
  // The lane's size in bytes when idle: a power of two from 4096. Default: 16384.
  uint64_t lane_size;
  // One of BW_DOORBELL_…. Default: a futex.
  uint32_t doorbell;
  // One of BW_BACKPRESSURE_…. Default: BW_BACKPRESSURE_ADAPT.
  uint32_t backpressure;
  // The deployment's token, 16 bytes, or NULL for none. Default: that of BELLWIRE_TOKEN.
  const uint8_t *token;
  // Users besides this one and root whose providers are trusted. Default: none.
  const uint32_t *trusted;
  // How many they are.
  size_t trusted_len;
} bw_client_config;

// Why a function failed.
typedef struct bw_error {
  // sizeof(bw_error), set by the caller: BW_ERROR_INIT does.
  size_t size;
  // One of BW_E_….
  int code;
  // Who has to act: one of BW_FAULT_….
  uint8_t fault;
  // 0: no handler ran for the request, nor will; resending is safe. 1: one may have run.
  uint8_t executed;
  // With BW_E_HANDLER: the code that the handler gave, or 0.
  uint32_t handler_code;
  // A sentence for an operator, with the next step; terminated UTF-8, cut to fit.
  char message[492];
} bw_error;

// Bytes that the library lends: see the function that lends them for how long.
typedef struct bw_bytes {
  // The first byte; not NULL, even if there is none.
  const void *data;
  // How many.
  size_t len;
} bw_bytes;

// A snapshot that a cache holds.
typedef struct bw_snapshot {
  // Its bytes, which do not change, until the cache is refreshed or freed.
  struct bw_bytes bytes;
  // Its number, from 1 for each provider.
  uint64_t generation;
  // How long this process has had it, in nanoseconds.
  uint64_t age_ns;
} bw_snapshot;

// UTF-8 that the library lends, not terminated.
typedef struct bw_text {
  // The first byte; not NULL.
  const char *data;
  // How many bytes.
  size_t len;
} bw_text;

// One cgroup. Its texts stay until bw_cgroups_refresh or bw_cgroups_free.
typedef struct bw_cgroup {
  // The inode of its directory: what bpf_get_current_cgroup_id returns, unless it is secondary.
  uint64_t id;
  // bw_cgroup_name_hash of its name.
  uint64_t name_hash;
  // A readable name, not necessarily unique.
  struct bw_text name;
  // Its path below the hierarchy's root, unique.
  struct bw_text path;
  // Of BW_CGROUP_….
  uint32_t options;
  // The software that manages it: 0 unknown, 1 systemd, 2 Docker, 3 Kubernetes, 4 a virtual machine, 5 LXC, 6 Podman,
  // 7 systemd-nspawn, 8 containerd, 9 Nomad.
  uint8_t orchestrator;
  // Whether there is something to collect.
  uint8_t enabled;
  // How many labels it has, for bw_cgroups_label.
  uint8_t labels;
} bw_cgroup;

// Counters of a client's session: made = answered + refused + failed + posts_taken + posts_lost + in_flight.
typedef struct bw_client_stats {
  // sizeof(bw_client_stats), set by the caller.
  size_t size;
  // Requests sent; a batch counts as one.
  uint64_t made;
  // Requests answered by their handler, without an error.
  uint64_t answered;
  // Requests answered without running a handler.
  uint64_t refused;
  // Requests that ended in any other way.
  uint64_t failed;
  // Requests that wait for an answer, and posts that the provider has not taken.
  uint64_t in_flight;
  // Posts that the provider has taken.
  uint64_t posts_taken;
  // Posts that it had not taken when the session ended: no handler runs for them.
  uint64_t posts_lost;
  // Calls that ended before their request was sent.
  uint64_t unsent;
  // How often this end rang the provider: one system call each.
  uint64_t rings;
  // How often this end slept.
  uint64_t parks;
} bw_client_stats;

// The configuration of a server. Fill it with bw_server_config_init, then change what should differ.
typedef struct bw_server_config {
  // sizeof(bw_server_config), set by bw_server_config_init.
  size_t size;
  // Threads that run handlers. Default: 0, the server's own thread: fastest, if no handler blocks.
  size_t workers;
  // The most sessions at once. Default: 16384.
  size_t max_sessions;
  // The most memory that all clients together may make this process hold, in bytes; 0: a quarter of what is available.
  uint64_t max_memory;
  // How long bw_server_stop waits for handlers and for answers to be taken. Default: 1 s.
  uint64_t drain_timeout_ns;
  // The lane's size in bytes when idle: a power of two from 4096. Default: 16384.
  uint64_t lane_size;
  // One of BW_ADMIT_…. Default: BW_ADMIT_SAME_USER.
  uint32_t admit;
  // The group, with BW_ADMIT_GROUP.
  uint32_t group;
  // The users, with BW_ADMIT_USERS.
  const uint32_t *users;
  // How many they are.
  size_t users_len;
  // The deployment's token, 16 bytes, or NULL to admit clients with any. Default: that of BELLWIRE_TOKEN.
  const uint8_t *token;
  // The longest that the server's thread spins before it sleeps, at most 1 ms; 0 never spins. Default: as of clients.
  uint64_t spin_max_ns;
} bw_server_config;

// What a subscriber gets.
typedef struct bw_delivery {
  // BW_EVENT, BW_MISSED or BW_RESTARTED.
  uint32_t kind;
  // Of an event: its number, counted by its publisher from 1. Of BW_MISSED: how many.
  uint64_t number;
  // Of an event: its bytes, until the next function that is called with this subscriber.
  struct bw_bytes event;
} bw_delivery;

// One process. Its texts stay until the next look-up.
typedef struct bw_app {
  // One of BW_LOOKUP_…; the rest is 0 and empty unless it is known.
  uint32_t outcome;
  // Its parent's pid.
  uint32_t ppid;
  // Its user.
  uint32_t uid;
  // The software that manages its cgroup, as of bw_cgroup.
  uint8_t orchestrator;
  // When it started, in nanoseconds since the machine did.
  uint64_t started_ns;
  // Its name, as the kernel has it.
  struct bw_text comm;
  // Its cgroup's path.
  struct bw_text cgroup;
  // Its cgroup's display name.
  struct bw_text cgroup_name;
  // How many labels its cgroup has, for bw_apps_label.
  size_t labels;
  // 1 while the provider waits for the cgroup's name: it is made from the path, and may change.
  uint8_t pending;
} bw_app;

// One cgroup's description. Its texts stay until the next look-up.
typedef struct bw_cgroup_details {
  // One of BW_LOOKUP_…; the rest is 0 and empty unless it is known.
  uint32_t outcome;
  // Of BW_CGROUP_….
  uint32_t options;
  // As of bw_cgroup.
  uint8_t orchestrator;
  // Whether there is something to collect.
  uint8_t enabled;
  // As of bw_cgroup.
  uint64_t id;
  // As of bw_cgroup.
  struct bw_text name;
  // How many labels it has, for bw_cgroup_lookup_label.
  size_t labels;
} bw_cgroup_details;

// An answer of a pipelined request.
typedef struct bw_reply {
  // The request: the number that bw_client_submit returned.
  uint64_t ticket;
  // BW_OK, or why this request failed: then `error` of the function says more, and the session goes on.
  int code;
  // The answer, until the next function that is called with this client.
  struct bw_bytes answer;
} bw_reply;

// Handles a request: `request` has `len` bytes, until it returns. Answers with bw_answer_write and returns 0, or returns
// anything else: then the client gets BW_E_HANDLER with the text of bw_answer_fail and with what it returned as `handler_code`. It runs on the server's thread, or on any
// number of workers at once. It must return: longjmp, exceptions and cancelling the thread are undefined. In a batch it runs for
// every item; an answer that no longer fits the message becomes BW_E_TOO_LARGE of that item, which always fits.
typedef int (*bw_handler)(void *user,
                          const struct bw_caller *caller,
                          const void *request,
                          size_t len,
                          struct bw_answer *answer);

// Counters of a server: accepted = answered + refused + lost + posted + in flight. These tell whether it serves, and what it denied its
// clients; `bellwire stat` shows all others of the running process.
typedef struct bw_server_stats {
  // sizeof(bw_server_stats), set by the caller.
  size_t size;
  // Open sessions.
  uint64_t sessions;
  // Clients admitted so far.
  uint64_t admitted;
  // Clients that were refused, or did not finish the handshake.
  uint64_t handshakes_failed;
  // Requests taken; a batch counts as one.
  uint64_t accepted;
  // Requests that a handler answered or failed.
  uint64_t answered;
  // Requests answered without running a handler.
  uint64_t refused;
  // Requests whose client went away before they were answered.
  uint64_t lost;
  // Of answered, those that the handler failed, or whose answer could not be sent.
  uint64_t errors;
  // Posts that were handled or refused.
  uint64_t posted;
  // Sessions closed because the client violated the protocol.
  uint64_t poisoned;
  // Sessions closed because the client took nothing of what was published for it for too long.
  uint64_t stalled;
  // How often this process had no descriptor left to accept a client, follow its lane, or answer it.
  uint64_t out_of_descriptors;
  // How often this process had no memory or mappings left for that.
  uint64_t out_of_memory;
  // How often a client was denied memory because its user had reached the quota.
  uint64_t over_quota;
} bw_server_stats;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Returns the version of the library, such as "0.1.0": never NULL, and never freed.
const char *bw_version(void);

// Creates a cache of the snapshots of a service: `dir` and `config` as of bw_client_new. Free it with bw_cache_free.
//
// Requires:
// Pointers are NULL where that is allowed, or valid.
int bw_cache_new(const char *dir,
                 const struct bw_contract *contract,
                 const struct bw_client_config *config,
                 struct bw_cache **out,
                 struct bw_error *error);

// Looks for a newer snapshot and takes it, waiting for at most `within_ns`; 0 never waits, and finds what an earlier refresh
// asked for. Writes one of BW_UNCHANGED … BW_UNAVAILABLE to `outcome`, which may be NULL. An unchanged one costs two loads.
//
// Requires:
// A cache, and pointers that are NULL or valid.
int bw_cache_refresh(struct bw_cache *cache,
                     uint64_t within_ns,
                     int *outcome,
                     struct bw_error *error);

// Waits until there is a newer snapshot, at most for `timeout_ns`, or BW_FOREVER, and takes it; the outcome is as of bw_cache_refresh.
//
// Requires:
// A cache, and pointers that are NULL or valid.
int bw_cache_wait(struct bw_cache *cache,
                  uint64_t timeout_ns,
                  int *outcome,
                  struct bw_error *error);

// Writes the newest snapshot that the cache has; BW_E_ABSENT where it has none.
//
// Requires:
// A cache, `snapshot` may be written, `error` is NULL or valid.
int bw_cache_current(struct bw_cache *cache, struct bw_snapshot *snapshot, struct bw_error *error);

// Makes bw_cache_fd readable when a refresh has something to do: call it after a refresh, before each poll. Writes 1 to `is_ready` if
// there may be something already, or the provider is gone: refresh again, and do not sleep.
//
// Requires:
// A cache, `is_ready` may be written, `error` is NULL or valid.
int bw_cache_arm(struct bw_cache *cache,
                 int *is_ready,
                 struct bw_error *error);

// Writes a descriptor to `fd` for an event loop, after bw_cache_arm and before each poll: the descriptor changes with the cache's
// state. Refresh when it is readable, and also after `timeout_ns`, which may be NULL; BW_FOREVER there means never. The doorbell must not
// be a futex. The descriptor stays the cache's.
//
// Requires:
// A cache, `fd` may be written, other pointers are NULL or valid.
int bw_cache_fd(struct bw_cache *cache,
                int *fd,
                uint64_t *timeout_ns,
                struct bw_error *error);

// Creates an object by which other threads end the waits of this cache. Free it with bw_canceller_free.
//
// Requires:
// A cache, `out` may be written, `error` is NULL or valid.
int bw_cache_canceller(struct bw_cache *cache, struct bw_canceller **out, struct bw_error *error);

// Frees a cache and its snapshot. NULL is fine.
//
// Requires:
// NULL, or a cache that is never used again.
void bw_cache_free(struct bw_cache *cache);

// Returns the hash of a name: 64-bit FNV-1a. 0 for NULL or invalid UTF-8.
//
// Requires:
// NULL, or a terminated text.
uint64_t bw_cgroup_name_hash(const char *name);

// Returns a shorter hash of a name: 32-bit FNV-1a. 0 for NULL or invalid UTF-8.
//
// Requires:
// NULL, or a terminated text.
uint32_t bw_cgroup_name_hash32(const char *name);

// Writes the name of a cgroup as an identifier for charts, terminated: letters, digits, '_' and '-' stay, a dot becomes '-', and any
// other character '_'. `size` is that of `out`; the name's length and one byte are enough. BW_E_INVALID where it does not fit.
//
// Requires:
// The text is one that the library lent, `out` has `size` bytes, `error` is NULL or valid.
int bw_cgroup_chart_id(struct bw_text name,
                       char *out,
                       size_t size,
                       struct bw_error *error);

// Creates a reader of the machine's cgroups: `dir` and `config` as of bw_client_new. Free it with bw_cgroups_free.
//
// Requires:
// Pointers are NULL where that is allowed, or valid.
int bw_cgroups_new(const char *dir,
                   const struct bw_client_config *config,
                   struct bw_cgroups **out,
                   struct bw_error *error);

// Looks for newer cgroups and takes them, as bw_cache_refresh does. They are validated as a whole: afterwards, no look-up
// allocates or fails.
//
// Requires:
// A reader, and pointers that are NULL or valid.
int bw_cgroups_refresh(struct bw_cgroups *cgroups,
                       uint64_t within_ns,
                       int *outcome,
                       struct bw_error *error);

// Makes bw_cgroups_fd readable when a refresh has something to do, as bw_cache_arm does.
//
// Requires:
// A reader, `is_ready` may be written, `error` is NULL or valid.
int bw_cgroups_arm(struct bw_cgroups *cgroups, int *is_ready, struct bw_error *error);

// Writes a descriptor to `fd`, and after how long to refresh in any case to `timeout_ns`, as bw_cache_fd does. It stays the reader's.
//
// Requires:
// A reader, `fd` may be written, other pointers are NULL or valid.
int bw_cgroups_fd(struct bw_cgroups *cgroups,
                  int *fd,
                  uint64_t *timeout_ns,
                  struct bw_error *error);

// Returns how many cgroups there are: 0 before the first refresh that found some. Of NULL: 0.
//
// Requires:
// NULL, or a reader.
size_t bw_cgroups_count(const struct bw_cgroups *cgroups);

// Writes the cgroup of this id; BW_E_ABSENT where there is none. Constant time, as all look-ups.
//
// Requires:
// A reader, `out` may be written, `error` is NULL or valid.
int bw_cgroups_by_id(const struct bw_cgroups *cgroups,
                     uint64_t id,
                     struct bw_cgroup *out,
                     struct bw_error *error);

// Writes the cgroup of this path; BW_E_ABSENT where there is none.
//
// Requires:
// A reader, `path` is terminated, `out` may be written, `error` is NULL or valid.
int bw_cgroups_by_path(const struct bw_cgroups *cgroups,
                       const char *path,
                       struct bw_cgroup *out,
                       struct bw_error *error);

// Writes the cgroup of this name, of several the one whose path sorts first; BW_E_ABSENT where there is none.
//
// Requires:
// A reader, `name` is terminated, `out` may be written, `error` is NULL or valid.
int bw_cgroups_by_name(const struct bw_cgroups *cgroups,
                       const char *name,
                       struct bw_cgroup *out,
                       struct bw_error *error);

// Writes the cgroup at a position, in the order of their paths; BW_E_ABSENT from bw_cgroups_count on.
//
// Requires:
// A reader, `out` may be written, `error` is NULL or valid.
int bw_cgroups_at(const struct bw_cgroups *cgroups,
                  size_t position,
                  struct bw_cgroup *out,
                  struct bw_error *error);

// Writes a label of the cgroup of this id, from the source of its name. BW_E_ABSENT if there is none; both texts
// stay as those of the cgroup.
//
// Requires:
// A reader, `name` and `value` may be written, `error` is NULL or valid.
int bw_cgroups_label(const struct bw_cgroups *cgroups,
                     uint64_t id,
                     size_t label,
                     struct bw_text *name,
                     struct bw_text *value,
                     struct bw_error *error);

// Writes the directory below which the paths of a cgroup's hierarchy start in the provider's mount namespace, such as
// /sys/fs/cgroup: its path follows, and then "/cgroup.procs". BW_E_ABSENT where the provider does not say. The cgroup is that of
// this id.
//
// Requires:
// A reader, `root` may be written, `error` is NULL or valid.
int bw_cgroups_root(const struct bw_cgroups *cgroups,
                    uint64_t id,
                    struct bw_text *root,
                    struct bw_error *error);

// Frees a reader and its texts. NULL is fine.
//
// Requires:
// NULL, or a reader that is never used again.
void bw_cgroups_free(struct bw_cgroups *cgroups);

// Creates a client of the service of `contract`, whose provider listens in the run dir `dir`; NULL: BELLWIRE_RUN_DIR or the
// default. `config` may be NULL. It connects at the first call. Free it with bw_client_free.
//
// Requires:
// Pointers are NULL where that is allowed, or valid.
int bw_client_new(const char *dir,
                  const struct bw_contract *contract,
                  const struct bw_client_config *config,
                  struct bw_client **out,
                  struct bw_error *error);

// Closes the session and frees the client. NULL is fine.
//
// Requires:
// NULL, or a client that is never used again.
void bw_client_free(struct bw_client *client);

// Advances the client without blocking: connects where a retry is due, goes on with the handshake, or notices that the
// provider is gone. Writes one of BW_STATE_… to `state`, which may be NULL.
//
// Requires:
// A client, and pointers that are NULL or may be written.
int bw_client_refresh(struct bw_client *client,
                      int *state,
                      struct bw_error *error);

// Checks whether there is a session, and fails as a call would where there is none: the error says why.
//
// Requires:
// A client, and `error` NULL or valid.
int bw_client_check(struct bw_client *client, struct bw_error *error);

// Waits until there is a provider, and opens a session, at most for `timeout_ns`. Polls nothing.
//
// Requires:
// A client, and `error` NULL or valid.
int bw_client_wait_available(struct bw_client *client, uint64_t timeout_ns, struct bw_error *error);

// Writes a descriptor to `fd` that is readable when an absent provider may have come up: call bw_client_refresh then. Ask
// for it before each poll. It stays the client's.
//
// Requires:
// A client, `fd` may be written, and `error` is NULL or valid.
int bw_client_arrival_fd(struct bw_client *client,
                         int *fd,
                         struct bw_error *error);

// Calls and waits for the answer, at most for `timeout_ns`, which includes connecting. In a steady state, allocates
// nothing. `answer` stays until the next function that is called with this client.
//
// Requires:
// A client, `request` points to `len` bytes, `answer` may be written, `error` is NULL or valid.
int bw_client_call(struct bw_client *client,
                   const void *request,
                   size_t len,
                   uint64_t timeout_ns,
                   struct bw_bytes *answer,
                   struct bw_error *error);

// Calls with a payload and returns the answer as one: large ones are mapped, not copied. Free it with bw_payload_free.
//
// Requires:
// A client, a payload, `answer` may be written, `error` is NULL or valid.
int bw_client_call_payload(struct bw_client *client,
                           const struct bw_payload *request,
                           uint64_t timeout_ns,
                           struct bw_payload **answer,
                           struct bw_error *error);

// Sends a one-way request: the handler runs, and no answer is sent. Where the lane is full, the configured backpressure
// decides.
//
// Requires:
// A client, `request` points to `len` bytes, `error` is NULL or valid.
int bw_client_post(struct bw_client *client,
                   const void *request,
                   size_t len,
                   struct bw_error *error);

// Waits until the provider has taken everything that was posted, at most for `timeout_ns`.
//
// Requires:
// A client, and `error` NULL or valid.
int bw_client_flush(struct bw_client *client, uint64_t timeout_ns, struct bw_error *error);

// Makes the lanes of both ends as small as they may be, after large messages, and waits until the provider has done its part,
// at most for the configured time. Requests in flight go on.
//
// Requires:
// A client, and `error` NULL or valid.
int bw_client_trim(struct bw_client *client,
                   struct bw_error *error);

// Creates an object by which other threads end this client's waits. Free it with bw_canceller_free.
//
// Requires:
// A client, `out` may be written, `error` is NULL or valid.
int bw_client_canceller(struct bw_client *client, struct bw_canceller **out, struct bw_error *error);

// Ends the current wait of the object that it was created from, or its next one, with BW_E_CANCELLED. Any thread may call it at
// any time, but no signal handler.
//
// Requires:
// A canceller, or NULL.
int bw_canceller_cancel(const struct bw_canceller *canceller);

// Frees a canceller; the client may be gone. NULL is fine.
//
// Requires:
// NULL, or a canceller that is never used again.
void bw_canceller_free(struct bw_canceller *canceller);

// Writes the counters of the open session; BW_E_PEER_GONE without one.
//
// Requires:
// A client, `stats` with its size set, `error` is NULL or valid.
int bw_client_get_stats(struct bw_client *client, struct bw_client_stats *stats, struct bw_error *error);

// Fills `config` with the defaults. Does nothing to NULL.
//
// Requires:
// NULL, or a struct that may be written.
void bw_client_config_init(struct bw_client_config *config);

// Fills `config` with the defaults. Does nothing to NULL.
//
// Requires:
// NULL, or a struct that may be written.
void bw_server_config_init(struct bw_server_config *config);

// Returns the fingerprint of a description of a service's types, the same in every language: 64-bit FNV-1a. 0 for NULL.
//
// Requires:
// NULL, or a terminated text.
uint64_t bw_schema(const char *description);

// Serves events, of which it keeps the last `depth` bytes, and writes their publisher to `out`. Free it with
// bw_event_publisher_free, before or after the server.
//
// Requires:
// A builder, a contract, `out` may be written, `error` is NULL or valid.
int bw_server_builder_events(struct bw_server_builder *builder,
                             const struct bw_contract *contract,
                             uint64_t depth,
                             struct bw_event_publisher **out,
                             struct bw_error *error);

// Publishes an event, and writes its number to `number`, which may be NULL. Costs a copy, and one system call for all
// subscribers.
//
// Requires:
// A publisher, `event` points to `len` bytes, and other pointers are NULL or valid.
int bw_event_publisher_send(const struct bw_event_publisher *publisher,
                            const void *event,
                            size_t len,
                            uint64_t *number,
                            struct bw_error *error);

// Makes room for at least `depth` bytes of events, up to 1 GiB. Subscribers follow, and miss nothing for it.
//
// Requires:
// A publisher, and `error` NULL or valid.
int bw_event_publisher_set_depth(const struct bw_event_publisher *publisher,
                                 uint64_t depth,
                                 struct bw_error *error);

// Frees a publisher. NULL is fine.
//
// Requires:
// NULL, or a publisher that is never used again.
void bw_event_publisher_free(struct bw_event_publisher *publisher);

// Creates a subscriber that starts at BW_START_NOW or BW_START_OLDEST: `dir` and `config` as of bw_client_new. It connects when
// it is first asked. Free it with bw_subscriber_free.
//
// Requires:
// Pointers are NULL where that is allowed, or valid.
int bw_subscriber_new(const char *dir,
                      const struct bw_contract *contract,
                      uint32_t start,
                      const struct bw_client_config *config,
                      struct bw_subscriber **out,
                      struct bw_error *error);

// Takes the next delivery, waiting for at most `timeout_ns`, or BW_FOREVER; 0 never waits. BW_E_WOULD_BLOCK where there is none,
// also while the provider is absent.
//
// Requires:
// A subscriber, `delivery` may be written, `error` is NULL or valid.
int bw_subscriber_next(struct bw_subscriber *subscriber,
                       uint64_t timeout_ns,
                       struct bw_delivery *delivery,
                       struct bw_error *error);

// Makes bw_subscriber_fd readable at the next event. Writes 1 to `is_ready` if there may be one already, or the provider is gone:
// take events, and do not sleep.
//
// Requires:
// A subscriber, `is_ready` may be written, `error` is NULL or valid.
int bw_subscriber_arm(struct bw_subscriber *subscriber,
                      int *is_ready,
                      struct bw_error *error);

// Writes a descriptor to `fd` for an event loop, after bw_subscriber_arm and before each poll: the descriptor changes with the
// subscriber's state. The doorbell must not be a futex. The descriptor stays the subscriber's. Take events also after bw_subscriber_poll_timeout.
//
// Requires:
// A subscriber, `fd` may be written, `error` is NULL or valid.
int bw_subscriber_fd(struct bw_subscriber *subscriber,
                     int *fd,
                     struct bw_error *error);

// Writes to `timeout_ns` after how long to take events even if the descriptor is not readable, because an attempt to open a session is
// due then, or the provider declined to ring; BW_FOREVER means never. Call it after bw_subscriber_arm.
//
// Requires:
// A subscriber, `timeout_ns` may be written, `error` is NULL or valid.
int bw_subscriber_poll_timeout(struct bw_subscriber *subscriber,
                               uint64_t *timeout_ns,
                               struct bw_error *error);

// Creates an object by which other threads end this subscriber's waits. Free it with bw_canceller_free.
//
// Requires:
// A subscriber, `out` may be written, `error` is NULL or valid.
int bw_subscriber_canceller(struct bw_subscriber *subscriber,
                            struct bw_canceller **out,
                            struct bw_error *error);

// Frees a subscriber. NULL is fine.
//
// Requires:
// NULL, or a subscriber that is never used again.
void bw_subscriber_free(struct bw_subscriber *subscriber);

// Creates a client of apps-lookup: `dir` and `config` as of bw_client_new. Free it with bw_apps_free.
//
// Requires:
// Pointers are NULL where that is allowed, or valid.
int bw_apps_new(const char *dir,
                const struct bw_client_config *config,
                struct bw_apps **out,
                struct bw_error *error);

// Describes `count` processes in one message: `out` has as many elements as `pids`.
//
// Requires:
// A client of apps-lookup, arrays of `count` elements, `error` is NULL or valid.
int bw_apps_find(struct bw_apps *apps,
                 const uint32_t *pids,
                 size_t count,
                 struct bw_app *out,
                 struct bw_error *error);

// Writes a label of the cgroup of a process that the last look-up described: its place among the pids, and the label's.
// BW_E_ABSENT where there is none.
//
// Requires:
// A client of apps-lookup, `name` and `value` may be written, `error` is NULL or valid.
int bw_apps_label(struct bw_apps *apps,
                  size_t at,
                  size_t label,
                  struct bw_text *name,
                  struct bw_text *value,
                  struct bw_error *error);

// Frees a client of apps-lookup. NULL is fine.
//
// Requires:
// NULL, or one that is never used again.
void bw_apps_free(struct bw_apps *apps);

// Creates a client of cgroups-lookup: `dir` and `config` as of bw_client_new. Free it with bw_cgroup_lookup_free.
//
// Requires:
// Pointers are NULL where that is allowed, or valid.
int bw_cgroup_lookup_new(const char *dir,
                         const struct bw_client_config *config,
                         struct bw_cgroup_lookup **out,
                         struct bw_error *error);

// Describes `count` cgroups by their paths in one message: `out` has as many elements as `paths`.
//
// Requires:
// A client of cgroups-lookup, arrays of `count` elements, paths are terminated, `error` is NULL or valid.
int bw_cgroup_lookup_find(struct bw_cgroup_lookup *lookup,
                          const char *const *paths,
                          size_t count,
                          struct bw_cgroup_details *out,
                          struct bw_error *error);

// Writes a label of a cgroup that the last look-up described: its place among the paths, and the label's. BW_E_ABSENT
// where there is none.
//
// Requires:
// A client of cgroups-lookup, `name` and `value` may be written, `error` is NULL or valid.
int bw_cgroup_lookup_label(struct bw_cgroup_lookup *lookup,
                           size_t at,
                           size_t label,
                           struct bw_text *name,
                           struct bw_text *value,
                           struct bw_error *error);

// Frees a client of cgroups-lookup. NULL is fine.
//
// Requires:
// NULL, or one that is never used again.
void bw_cgroup_lookup_free(struct bw_cgroup_lookup *lookup);

// Builds a payload of `len` bytes in place: `fill` gets them, with arbitrary content, and `user`.
//
// Requires:
// `fill` writes at most `len` bytes and returns; `out` may be written.
int bw_payload_build(size_t len,
                     void (*fill)(void *bytes, size_t len, void *user),
                     void *user,
                     struct bw_payload **out,
                     struct bw_error *error);

// Returns the bytes, which stay until the payload is freed. Of NULL: none.
//
// Requires:
// NULL, or a payload.
struct bw_bytes bw_payload_bytes(const struct bw_payload *payload);

// Frees a payload. NULL is fine.
//
// Requires:
// NULL, or a payload that is never used again.
void bw_payload_free(struct bw_payload *payload);

// Calls with `count` requests in one message, and waits for all answers; take them in order with bw_client_batch_next.
// The handler runs for each request, also where its answer no longer fits the message: that one fails alone with BW_E_TOO_LARGE.
//
// Requires:
// A client, `requests` points to `count` bytes and lengths, `error` is NULL or valid.
int bw_client_call_batch(struct bw_client *client,
                         const struct bw_bytes *requests,
                         size_t count,
                         struct bw_error *error);

// Takes the next answer of the last batch: BW_E_WOULD_BLOCK after the last one. `answer` stays until the next function that
// is called with this client. An answer that failed is this function's error, and the next one follows.
//
// Requires:
// A client, `answer` may be written, `error` is NULL or valid.
int bw_client_batch_next(struct bw_client *client,
                         struct bw_bytes *answer,
                         struct bw_error *error);

// Sends a request and returns at once, with its number in `ticket`, which may be NULL; bw_client_try_reply or
// bw_client_wait_reply return its answer. BW_E_WOULD_BLOCK where the lane is full: take replies first.
//
// Requires:
// A client, `request` points to `len` bytes, and other pointers are NULL or valid.
int bw_client_submit(struct bw_client *client,
                     const void *request,
                     size_t len,
                     uint64_t *ticket,
                     struct bw_error *error);

// Takes the next answer, in the order in which the provider sent them: BW_E_WOULD_BLOCK where none has arrived. Never
// waits.
//
// Requires:
// A client, `reply` may be written, `error` is NULL or valid.
int bw_client_try_reply(struct bw_client *client,
                        struct bw_reply *reply,
                        struct bw_error *error);

// Waits for the next answer, at most for `timeout_ns`: BW_E_DEADLINE where none has arrived; requests stay in flight.
//
// Requires:
// A client, `reply` may be written, `error` is NULL or valid.
int bw_client_wait_reply(struct bw_client *client,
                         uint64_t timeout_ns,
                         struct bw_reply *reply,
                         struct bw_error *error);

// Gives up a pipelined request: its answer is dropped when it arrives, and its handler is notified. Writes 1 to `was_in_flight`,
// which may be NULL, if the request was in flight.
//
// Requires:
// A client, and pointers that are NULL or valid.
int bw_client_abandon(struct bw_client *client,
                      uint64_t ticket,
                      int *was_in_flight,
                      struct bw_error *error);

// Writes a descriptor to `fd` that becomes readable when the provider rings: poll it edge-triggered, or after
// bw_client_arm. BW_E_INVALID where the doorbell is a futex. It stays the client's.
//
// Requires:
// A client, `fd` may be written, `error` is NULL or valid.
int bw_client_fd(struct bw_client *client, int *fd, struct bw_error *error);

// Asks the provider to ring at its next answer. Writes 1 to `is_ready` if one has arrived already: take it first. Call it
// before each poll of bw_client_fd.
//
// Requires:
// A client, `is_ready` may be written, `error` is NULL or valid.
int bw_client_arm(struct bw_client *client,
                  int *is_ready,
                  struct bw_error *error);

// Publishes a copy of `len` bytes, and writes its generation, from 1, to `generation`, which may be NULL.
//
// Requires:
// A publisher, `data` points to `len` bytes, and other pointers are NULL or valid.
int bw_publisher_publish(const struct bw_publisher *publisher,
                         const void *data,
                         size_t len,
                         uint64_t *generation,
                         struct bw_error *error);

// Publishes `len` bytes that `fill` writes in place, in zeroed memory that readers will map.
//
// Requires:
// A publisher, `fill` writes at most `len` bytes and returns, and other pointers are NULL or valid.
int bw_publisher_publish_with(const struct bw_publisher *publisher,
                              size_t len,
                              void (*fill)(void *bytes, size_t len, void *user),
                              void *user,
                              uint64_t *generation,
                              struct bw_error *error);

// Frees a publisher. The server serves the last snapshot until it stops. NULL is fine.
//
// Requires:
// NULL, or a publisher that is never used again.
void bw_publisher_free(struct bw_publisher *publisher);

// Begins a server whose services listen in the run dir `dir`; NULL: BELLWIRE_RUN_DIR or the default. `config` may be NULL.
// Start it with bw_server_builder_start, or free it with bw_server_builder_free.
//
// Requires:
// Pointers are NULL where that is allowed, or valid.
int bw_server_builder_new(const char *dir,
                          const struct bw_server_config *config,
                          struct bw_server_builder **out,
                          struct bw_error *error);

// Frees a builder, and the names that it has taken. NULL is fine.
//
// Requires:
// NULL, or a builder that is never used again.
void bw_server_builder_free(struct bw_server_builder *builder);

// Serves a service with a handler, which gets `user`. `user_free`, which may be NULL, is called with `user` once no handler
// can run any more, or if this function fails.
//
// Requires:
// A builder, a contract, `user` may be used by the threads that run handlers, and other pointers are NULL or valid.
int bw_server_builder_serve(struct bw_server_builder *builder,
                            const struct bw_contract *contract,
                            bw_handler handler,
                            void *user,
                            void (*user_free)(void *user),
                            struct bw_error *error);

// Serves snapshots, and writes their publisher to `out`. Free it with bw_publisher_free, before or after the server.
//
// Requires:
// A builder, a contract, `out` may be written, `error` is NULL or valid.
int bw_server_builder_publish(struct bw_server_builder *builder,
                              const struct bw_contract *contract,
                              struct bw_publisher **out,
                              struct bw_error *error);

// Starts the server. The builder is freed, also if this fails.
//
// Requires:
// A builder that is never used again, `out` may be written, `error` is NULL or valid.
int bw_server_builder_start(struct bw_server_builder *builder,
                            struct bw_server **out,
                            struct bw_error *error);

// Stops the server and frees it: waits for handlers, and for clients to take their answers, at most for the configured
// time. From a handler of this server it returns at once, and the server stops as soon as that has returned. NULL
// is fine.
//
// Requires:
// NULL, or a server that is never used again.
void bw_server_stop(struct bw_server *server);

// Writes the counters of all services of the server. Any thread may call it at any time.
//
// Requires:
// A server, `stats` with its size set, `error` is NULL or valid.
int bw_server_get_stats(const struct bw_server *server,
                        struct bw_server_stats *stats,
                        struct bw_error *error);

// Appends to the answer.
//
// Requires:
// The answer that the handler was given, `data` points to `len` bytes.
int bw_answer_write(struct bw_answer *answer, const void *data, size_t len);

// Writes `len` zeroed bytes of the answer to `data`, to be filled in place until the next function that is called with it.
//
// Requires:
// The answer that the handler was given, `data` may be written.
int bw_answer_reserve(struct bw_answer *answer,
                      size_t len,
                      void **data);

// Has the request fail with a sentence for the client's operator.
//
// Requires:
// The answer that the handler was given, `reason` is terminated.
int bw_answer_fail(struct bw_answer *answer, const char *reason);

// Returns 1 when the answer is not wanted any more, else 0: a slow handler checks this often, at one load each.
//
// Requires:
// NULL, or the caller that the handler was given.
int bw_caller_is_abandoned(const struct bw_caller *caller);

// Returns the calling process's id; 0 where its pid namespace is not visible from here.
//
// Requires:
// NULL, or the caller that the handler was given.
uint32_t bw_caller_pid(const struct bw_caller *caller);

// Returns the calling process's user; 2^32 - 1 for NULL.
//
// Requires:
// NULL, or the caller that the handler was given.
uint32_t bw_caller_uid(const struct bw_caller *caller);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* BELLWIRE_H */
