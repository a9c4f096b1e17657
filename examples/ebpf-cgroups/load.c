/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* For the test: a process in a cgroup that does a known amount of each thing, and prints what the kernel itself counted of it.
 *
 * load CGROUP FAULTS SWITCHES MILLISECONDS FILE BYTES TCP_BYTES [CGROUP_PROCS]...
 *     in the directory CGROUP of the unified hierarchy, and in the v1 cgroups of these files, too
 * load --many CGROUP N
 *     N cgroups below CGROUP, and in each a process that faults on 64 pages, and then wakes each second, as long as this one lives
 * load --time
 *     ns for a context switch, a page fault, and sending and receiving 16 KiB */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <linux/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096
#define CHUNK (1 << 20)

/* Ends the program, unless the result of a system call is good. */
#define MUST(call) must((long)(call), #call)

static long must(long result, const char *call)
{
    if (result < 0) {
        fprintf(stderr, "%s: %s\n", call, strerror(errno));
        exit(1);
    }
    return result;
}

static void *map(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(memory == MAP_FAILED ? -1 : 0);
    return memory;
}

static void fault(size_t pages)
{
    char *memory = map(pages * PAGE + 1);
    MUST(madvise(memory, pages * PAGE + 1, MADV_NOHUGEPAGE));
    size_t written = pages / 2;
    for (size_t i = 0; i < written; i++)
        *(volatile char *)(memory + i * PAGE) = 1;
    /* The kernel faults on these. */
    int zeros = (int)MUST(open("/dev/zero", O_RDONLY));
    for (size_t i = written; i < pages; i++)
        MUST(read(zeros, memory + i * PAGE, 1));
    close(zeros);
}

static void sleep_often(long switches)
{
    for (struct timespec shortly = { 0, 1 }; switches > 0; switches--)
        nanosleep(&shortly, NULL);
}

static void burn(long milliseconds)
{
    clock_t end = clock() + milliseconds * (CLOCKS_PER_SEC / 1000);
    while (clock() < end)
        ;
}

/* Writes a file past the page cache, reads it again, and prints what reached a disk. */
static void use_disk(const char *path, size_t bytes)
{
    char *memory = memset(map(CHUNK), 1, CHUNK), line[64];
    int file = (int)MUST(open(path, O_RDWR | O_CREAT | O_TRUNC | O_DIRECT, 0600));
    for (size_t at = 0; at < bytes; at += CHUNK)
        MUST(pwrite(file, memory, CHUNK, (off_t)at));
    for (size_t at = 0; at < bytes; at += CHUNK)
        MUST(pread(file, memory, CHUNK, (off_t)at));
    close(file);
    FILE *io = fopen("/proc/self/io", "r");
    MUST(io ? 0 : -1);
    while (fgets(line, sizeof line, io))
        if (strncmp(line, "read_bytes", 10) == 0 || strncmp(line, "write_bytes", 11) == 0)
            fputs(line, stdout);
    fclose(io);
}

/* Sends bytes to itself, and returns what was received. */
static unsigned long long use_tcp(size_t bytes)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t size = sizeof address;
    int listener = (int)MUST(socket(AF_INET, SOCK_STREAM, 0)), client = (int)MUST(socket(AF_INET, SOCK_STREAM, 0));
    MUST(bind(listener, (struct sockaddr *)&address, size));
    MUST(listen(listener, 1));
    MUST(getsockname(listener, (struct sockaddr *)&address, &size));
    MUST(connect(client, (struct sockaddr *)&address, size));
    int server = (int)MUST(accept(listener, NULL, NULL));
    static char buffer[16384];
    size_t received = 0;
    for (size_t sent = 0; sent < bytes;) {
        size_t n = bytes - sent < sizeof buffer ? bytes - sent : sizeof buffer;
        sent += (size_t)MUST(send(client, buffer, n, 0));
        /* Looking does not count. */
        MUST(recv(server, buffer, 1, MSG_PEEK));
        while (received < sent)
            received += (size_t)MUST(recv(server, buffer, sizeof buffer, 0));
    }
    struct tcp_info info;
    socklen_t length = sizeof info;
    MUST(getsockopt(server, IPPROTO_TCP, TCP_INFO, &info, &length));
    return info.tcpi_bytes_received;
}

/* Starts a process in a cgroup; 0 in the process. */
static pid_t start_in(const char *cgroup)
{
    struct clone_args arguments = { .flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD };
    int directory = (int)MUST(open(cgroup, O_RDONLY | O_DIRECTORY));
    arguments.cgroup = (uint64_t)directory;
    pid_t pid = (pid_t)MUST(syscall(SYS_clone3, &arguments, sizeof arguments));
    close(directory);
    return pid;
}

static void join(const char *procs, pid_t pid)
{
    FILE *file = fopen(procs, "w");
    MUST(file ? 0 : -1);
    fprintf(file, "%d\n", pid);
    MUST(fclose(file));
}

static int many(const char *parent, int count)
{
    for (int i = 0; i < count; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/many-%d", parent, i);
        MUST(mkdir(path, 0755));
        if (start_in(path) == 0) {
            MUST(prctl(PR_SET_PDEATHSIG, SIGKILL));
            for (fault(64);;)
                sleep(1);
        }
    }
    return pause();
}

static double nanoseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* Two processes on one CPU, each woken by the other. */
static void ping_pong(int rounds)
{
    int there[2], back[2];
    char ball = 0;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    MUST(sched_setaffinity(0, sizeof one, &one));
    MUST(pipe(there));
    MUST(pipe(back));
    if (MUST(fork()) == 0) {
        close(there[1]);
        while (read(there[0], &ball, 1) == 1)
            MUST(write(back[1], &ball, 1));
        _exit(0);
    }
    while (rounds-- > 0) {
        MUST(write(there[1], &ball, 1));
        MUST(read(back[0], &ball, 1));
    }
    close(there[1]);
    MUST(wait(NULL));
}

static int time_all(void)
{
    double begun = nanoseconds();
    ping_pong(50000);
    double switched = nanoseconds();
    fault(50000);
    double faulted = nanoseconds();
    use_tcp(20000 * 16384);
    double sent = nanoseconds();
    printf("%.0f %.0f %.0f\n", (switched - begun) / 1e5, (faulted - switched) / 5e4, (sent - faulted) / 2e4);
    return 0;
}

int main(int argc, char **argv)
{
    int ready[2], status;
    struct rusage usage;
    char go;
    if (argc == 4 && strcmp(argv[1], "--many") == 0)
        return many(argv[2], atoi(argv[3]));
    if (argc == 2 && strcmp(argv[1], "--time") == 0)
        return time_all();
    if (argc < 8)
        return 2;
    MUST(pipe(ready));
    pid_t pid = start_in(argv[1]);
    if (pid == 0) {
        close(ready[1]);
        MUST(read(ready[0], &go, 1));
        fault((size_t)atol(argv[2]));
        sleep_often(atol(argv[3]));
        burn(atol(argv[4]));
        use_disk(argv[5], (size_t)atol(argv[6]));
        printf("tcp_received: %llu\n", use_tcp((size_t)atol(argv[7])));
        return 0;
    }
    for (int i = 8; i < argc; i++)
        join(argv[i], pid);
    close(ready[1]);
    MUST(wait4(pid, &status, 0, &usage));
    printf("faults: %ld\nswitches: %ld\n", usage.ru_minflt + usage.ru_majflt, usage.ru_nvcsw + usage.ru_nivcsw);
    return status ? 1 : 0;
}
