/* SPDX-License-Identifier: Apache-2.0
 *
 * Status codes and error texts: what every call that can fail returns.
 *
 * 0 is success and errors are negative. A published number keeps its meaning; new ones fill the
 * gaps between the groups. */
#ifndef PLEACH_STATUS_H
#define PLEACH_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define PLEACH_API __attribute__((visibility("default")))
#define PLEACH_MUST_CHECK __attribute__((warn_unused_result))
#else
#define PLEACH_API
#define PLEACH_MUST_CHECK
#endif

typedef enum pleach_status {
    PLEACH_OK = 0,
    /* The call itself is wrong. */
    PLEACH_ERR_ARGUMENT = -1,    /* a value outside its documented range */
    PLEACH_ERR_SHAPE = -2,       /* a geometry that no layout allows */
    PLEACH_ERR_UNSUPPORTED = -3, /* legal, but not something this build can do */
    PLEACH_ERR_LIMIT = -4,       /* a limit the caller set, such as the context length, is reached */
    PLEACH_ERR_BUSY = -5,        /* too many wait already: later it may go */
    /* The machine. */
    PLEACH_ERR_MEMORY = -20,
    PLEACH_ERR_IO = -21,
    PLEACH_ERR_NO_SPACE = -22, /* the disk is full */
    PLEACH_ERR_EXISTS = -23,   /* the output is there already */
    PLEACH_ERR_DEVICE = -24,   /* a GPU or its driver failed */
    /* The data. */
    PLEACH_ERR_FORMAT = -40,   /* a malformed file */
    PLEACH_ERR_MISSING = -41,  /* a file, shard, tensor or key that is needed is absent */
    PLEACH_ERR_DATA = -42,     /* NaN, infinity or a value out of range in a tensor */
    PLEACH_ERR_MISMATCH = -43, /* two things that must agree do not, as in resuming other work */
    /* The user. */
    PLEACH_ERR_CANCELLED = -60
} pleach_status;

/* One line that names the file and the tensor, what was expected and what was found. Calls that
 * take a pleach_error accept NULL, write to it only when they fail, and keep no pointer to it. */
typedef struct pleach_error {
    pleach_status code;
    char message[508];
} pleach_error;

/* The constant's name in plain words, such as "malformed file". Never NULL; static storage. */
PLEACH_API const char *pleach_status_text(pleach_status status);

#ifdef __cplusplus
}
#endif
#endif
