/* SPDX-License-Identifier: Apache-2.0
 *
 * The insides of the server, for the other files of this folder. */
#ifndef PL_SERVER_STATE_H
#define PL_SERVER_STATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "connections.h"
#include "keys.h"
#include "runtime/engine.h"
#include "server.h"

struct MHD_Daemon;

enum { PL_METRIC_STATUSES = 8 };

/* HTTP answers by status, for /metrics. */
typedef struct pl_status_count {
    int status;
    atomic_ullong n;
} pl_status_count;

struct pl_server {
    const pleach_model *model;
    const pl_tokenizer *tokenizer; /* the model's */
    pleach_batch *batch;
    pl_server_settings settings; /* texts owned */
    pleach_model_info info;
    size_t context;       /* tokens an answer may hold with its prompt */
    size_t longest_piece; /* bytes of the longest token */
    int64_t started;      /* seconds since 1970 */
    pl_keys keys;
    pl_status_count statuses[PL_METRIC_STATUSES];
    pl_connections connections;
    struct MHD_Daemon *daemon; /* NULL: requests come by pl_dispatch alone, as in tests */
    atomic_size_t active;      /* requests being answered */
    atomic_bool stopping;      /* new requests are refused */
    atomic_bool cut;           /* running answers are to end now */
};

/* The server without its network. */
pleach_status pl_server_prepare(const pleach_model *m, const pl_server_settings *s, pl_server **out,
                                pleach_error *err);
void pl_server_release(pl_server *s);

#endif
