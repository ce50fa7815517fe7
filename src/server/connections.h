/* SPDX-License-Identifier: Apache-2.0
 *
 * Open connections and until when each may make its client wait for. A client that sends a request
 * byte by byte, that does not take its answer, or that says nothing at all is shut out. */
#ifndef PL_SERVER_CONNECTIONS_H
#define PL_SERVER_CONNECTIONS_H

#include <pthread.h>
#include <stddef.h>

typedef struct pl_connection {
    struct pl_connection *next, *previous;
    int socket;
    double deadline; /* of pl_seconds; 0: none, it is we who work */
} pl_connection;

typedef struct pl_connections {
    pthread_mutex_t lock;
    pl_connection *first;
    size_t n;
} pl_connections;

void pl_connections_init(pl_connections *c);
void pl_connections_destroy(pl_connections *c);

/* NULL: out of memory. */
pl_connection *pl_connection_open(pl_connections *c, int socket, double seconds);
void pl_connection_close(pl_connections *c, pl_connection *one); /* accepts NULL */
/* The client has so many seconds from now; 0: as many as it takes. NULL is accepted. */
void pl_connection_allow(pl_connections *c, pl_connection *one, double seconds);
size_t pl_connections_count(pl_connections *c);
/* Shuts those whose time is over: their threads then find the socket closed. */
void pl_connections_shut_late(pl_connections *c);

#endif
