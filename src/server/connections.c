/* SPDX-License-Identifier: Apache-2.0 */
#include "connections.h"

#include <sys/socket.h>

#include "base/clock.h"
#include "base/memory.h"

void pl_connections_init(pl_connections *c)
{
    *c = (pl_connections){0};
    pthread_mutex_init(&c->lock, NULL);
}

void pl_connections_destroy(pl_connections *c)
{
    pthread_mutex_destroy(&c->lock);
}

pl_connection *pl_connection_open(pl_connections *c, int socket, double seconds)
{
    pl_connection *one = pl_calloc(1, sizeof *one);
    if (!one) return NULL;
    one->socket = socket;
    one->deadline = pl_seconds() + seconds;
    pthread_mutex_lock(&c->lock);
    one->next = c->first;
    if (c->first) c->first->previous = one;
    c->first = one;
    c->n++;
    pthread_mutex_unlock(&c->lock);
    return one;
}

void pl_connection_close(pl_connections *c, pl_connection *one)
{
    if (!one) return;
    pthread_mutex_lock(&c->lock);
    if (one->next) one->next->previous = one->previous;
    if (one->previous)
        one->previous->next = one->next;
    else
        c->first = one->next;
    c->n--;
    pthread_mutex_unlock(&c->lock);
    pl_free(one);
}

void pl_connection_allow(pl_connections *c, pl_connection *one, double seconds)
{
    if (!one) return;
    pthread_mutex_lock(&c->lock);
    one->deadline = seconds > 0 ? pl_seconds() + seconds : 0;
    pthread_mutex_unlock(&c->lock);
}

size_t pl_connections_count(pl_connections *c)
{
    pthread_mutex_lock(&c->lock);
    size_t n = c->n;
    pthread_mutex_unlock(&c->lock);
    return n;
}

void pl_connections_shut_late(pl_connections *c)
{
    double now = pl_seconds();
    pthread_mutex_lock(&c->lock);
    for (pl_connection *one = c->first; one; one = one->next)
        if (one->deadline > 0 && one->deadline < now) shutdown(one->socket, SHUT_RDWR);
    pthread_mutex_unlock(&c->lock);
}
