/* What the programs of this folder check with. */
#include <bellwire.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND 1000000000ull

/* Ends the program with the place and what was wrong. */
#define CHECK(condition)                                                       \
    do {                                                                       \
        if (!(condition)) {                                                    \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);   \
            exit(1);                                                           \
        }                                                                      \
    } while (0)

/* Ends the program with the error, unless the function succeeded. */
#define OK(call)                                                               \
    do {                                                                       \
        int code_ = (call);                                                    \
        if (code_ != BW_OK) {                                                  \
            fprintf(stderr, "%s:%d: %s: %d, %s\n", __FILE__, __LINE__, #call, code_, error.message); \
            exit(1);                                                           \
        }                                                                      \
    } while (0)

#define FAILS(expected, call)                                                  \
    do {                                                                       \
        memset(error.message, 0, sizeof error.message);                        \
        int code_ = (call);                                                    \
        if (code_ != (expected)) {                                             \
            fprintf(stderr, "%s:%d: %s: %d, not %s: %s\n", __FILE__, __LINE__, #call, code_, #expected, error.message); \
            exit(1);                                                           \
        }                                                                      \
    } while (0)
