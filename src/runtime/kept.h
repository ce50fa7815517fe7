/* SPDX-License-Identifier: Apache-2.0
 *
 * Sequences kept after their answers, within a bound on memory, for requests that begin with the
 * same tokens; the least recently used go first. One thread. */
#ifndef PL_RUNTIME_KEPT_H
#define PL_RUNTIME_KEPT_H

#include "session.h"

typedef struct pl_kept {
    struct pl_kept_item {
        pleach_session *session;
        uint64_t used; /* by `clock` */
    } *items;
    size_t n, capacity;
    uint64_t clock;
    uint64_t bytes, most; /* of pages: one that several caches share counts for each in part */
} pl_kept;

/* Takes the session over: it is kept, or closed at once. One that is the beginning of another is not
 * kept beside it where the longer one serves as well. */
void pl_kept_add(pl_kept *k, pleach_session *s);
/* Gives up the least recently used; false when nothing is kept. */
bool pl_kept_drop(pl_kept *k);
/* Down to the bound, after other holders of shared pages are gone. */
void pl_kept_trim(pl_kept *k);
void pl_kept_close(pl_kept *k);

/* What is held of a prompt somewhere: the first `reach` tokens can be gone on from, the first
 * `same` are the same. */
typedef struct pl_prefix {
    const pleach_session *session;
    size_t reach, same;
} pl_prefix;

/* Takes s for p where it reaches further. */
void pl_prefix_consider(pl_prefix *p, const pleach_session *s, const int32_t *prompt, size_t n);
/* The same for all that are kept; the one taken counts as used. */
void pl_kept_find(pl_kept *k, pl_prefix *p, const int32_t *prompt, size_t n);

#endif
