/* SPDX-License-Identifier: Apache-2.0
 *
 * The states of recurrent layers: one block of memory for all layers of a cache, shared between forks
 * until one of them goes on, and blocks of some earlier lengths. */
#include <assert.h>
#include <string.h>

#include "cache_store.h"

static size_t border(const pl_cache *c)
{
    return PL_MAX(c->recent, PL_CACHE_PAGE);
}

static pleach_status open_state(const pl_cache *c, page **out, pleach_error *err)
{
    page *p = *out = pl_alloc(1, sizeof *p + c->state_bytes);
    if (!p) return pl_fail_memory(err, "recurrent state", c->state_bytes);
    atomic_init(&p->references, 1);
    p->data = (uint8_t *)(p + 1);
    return PLEACH_OK;
}

static void release(page *p)
{
    if (page_leave(p)) pl_free(p);
}

/* ---- which are kept -------------------------------------------------------------------------- */

static void drop(pl_cache *c, size_t i)
{
    release(c->kept[i].page);
    memmove(c->kept + i, c->kept + i + 1, (--c->n_kept - i) * sizeof *c->kept);
}

/* The one, but for the newest, whose loss widens the gaps least, as a part of the distance to the
 * end. */
static size_t least_missed(const pl_cache *c)
{
    size_t end = c->kept[c->n_kept - 1].position + border(c), best = 0;
    double least = 2;
    for (size_t i = 0; i + 1 < c->n_kept; i++) {
        size_t before = i ? c->kept[i - 1].position : 0;
        double gap = (double)(c->kept[i + 1].position - before) / (double)(end - before);
        if (gap >= least) continue;
        least = gap;
        best = i;
    }
    return best;
}

/* Only states that are there: those of tokens that never came are dropped. */
static void settle(pl_cache *c)
{
    while (c->n_kept && c->kept[c->n_kept - 1].position > c->length) drop(c, c->n_kept - 1);
    if (c->spare.page) c->kept[c->n_kept++] = c->spare;
    c->spare.page = NULL;
}

/* Places for the states at the borders of the reserved tokens, without memory yet. Until these come
 * the last border stays. */
static void plan(pl_cache *c, size_t n)
{
    size_t last = c->length - c->length % border(c), end = c->length + n;
    for (size_t p = last + border(c); p <= end; p += border(c)) {
        size_t i = c->n_kept == PL_CACHE_STATES ? least_missed(c) : c->n_kept;
        if (i < c->n_kept && c->kept[i].position == last)
            c->spare = (state){last, page_share(c->kept[i].page)};
        if (i < c->n_kept) drop(c, i);
        c->kept[c->n_kept++] = (state){.position = p};
    }
}

/* ---- for cache.c ----------------------------------------------------------------------------- */

/* A state that this cache alone has. */
static pleach_status own_state(pl_cache *c, pleach_error *err)
{
    page *old = c->state;
    if (old && !page_shared(old)) return PLEACH_OK;
    PL_TRY(open_state(c, &c->state, err));
    if (old)
        memcpy(c->state->data, old->data, c->state_bytes);
    else
        memset(c->state->data, 0, c->state_bytes);
    release(old);
    return PLEACH_OK;
}

pleach_status pl_cache_states_reserve(pl_cache *c, size_t n, pleach_error *err)
{
    if (!c->state_bytes || n == 0) return PLEACH_OK;
    settle(c);
    page *old = c->state;
    pleach_status status = own_state(c, err);
    if (status != PLEACH_OK) {
        c->state = old;
        return status;
    }
    plan(c, n);
    for (size_t i = 0; i < c->n_kept; i++) {
        if (c->kept[i].page) continue;
        status = open_state(c, &c->kept[i].page, err);
        if (status == PLEACH_OK) continue;
        c->n_kept = i;
        return status;
    }
    return PLEACH_OK;
}

void pl_cache_states_advance(pl_cache *c)
{
    release(c->spare.page);
    c->spare.page = NULL;
}

void pl_cache_states_release(pl_cache *c)
{
    release(c->state);
    release(c->spare.page);
    while (c->n_kept) drop(c, c->n_kept - 1);
}

/* The one kept after n tokens, or NULL. */
static const state *find(const pl_cache *c, size_t n)
{
    if (c->spare.page && c->spare.position == n) return &c->spare;
    for (size_t i = 0; i < c->n_kept; i++)
        if (c->kept[i].position == n) return &c->kept[i];
    return NULL;
}

void pl_cache_states_share(pl_cache *c, const pl_cache *from, size_t n)
{
    if (!c->state_bytes) return;
    const state *now = n == from->length ? NULL : find(from, n);
    c->state = page_share(now ? now->page : n ? from->state : NULL);
    for (size_t i = 0; i < from->n_kept && from->kept[i].position <= PL_MIN(n, from->length); i++)
        c->kept[c->n_kept++] = (state){from->kept[i].position, page_share(from->kept[i].page)};
    if (from->spare.page && from->spare.position <= n)
        c->kept[c->n_kept++] = (state){from->spare.position, page_share(from->spare.page)};
}

bool pl_cache_states_reach(const pl_cache *c, size_t n)
{
    return !c->state_bytes || n == 0 || n == c->length || find(c, n);
}

bool pl_cache_states_cover(const pl_cache *c, const pl_cache *other)
{
    bool covers = pl_cache_states_reach(c, other->length);
    for (size_t i = 0; i < other->n_kept && other->kept[i].position <= other->length; i++)
        covers = covers && pl_cache_states_reach(c, other->kept[i].position);
    return covers;
}

size_t pl_cache_states_below(const pl_cache *c, size_t n)
{
    size_t best = c->spare.page && c->spare.position < n ? c->spare.position : 0;
    for (size_t i = 0; i < c->n_kept && c->kept[i].position < n; i++)
        best = PL_MAX(best, c->kept[i].position);
    return best;
}

size_t pl_cache_states_held(const pl_cache *c)
{
    return c->n_kept + (c->state != NULL) + (c->spare.page != NULL);
}

double pl_cache_states_in_parts(const pl_cache *c)
{
    double parts = page_part(c->state) + page_part(c->spare.page);
    for (size_t i = 0; i < c->n_kept; i++) parts += page_part(c->kept[i].page);
    return parts;
}

void pl_cache_states_truncate(pl_cache *c, size_t n)
{
    if (!c->state_bytes) return;
    settle(c);
    const state *s = find(c, n);
    release(c->state);
    c->state = s ? page_share(s->page) : NULL;
    while (c->n_kept && c->kept[c->n_kept - 1].position > n) drop(c, c->n_kept - 1);
}

/* ---- for who computes ------------------------------------------------------------------------ */

size_t pl_cache_state_bytes(const pl_cache *c)
{
    return c->state_bytes;
}

float *pl_cache_state(const pl_cache *c, uint32_t layer)
{
    return (float *)(c->state->data + c->stores[layer].state_at);
}

size_t pl_cache_state_piece(const pl_cache *c, size_t position, size_t end)
{
    return PL_MIN(position - position % border(c) + border(c), end);
}

float *pl_cache_state_kept(const pl_cache *c, uint32_t layer, size_t position)
{
    const state *s = find(c, position);
    return s ? (float *)(s->page->data + c->stores[layer].state_at) : NULL;
}

/* ---- for the file ---------------------------------------------------------------------------- */

/* The last border before the end, and the end: the same for the same tokens however they came. */
size_t pl_cache_states_saved(const pl_cache *c, size_t length)
{
    return (length > 0) + (length > border(c) && length % border(c) != 0);
}

static const page *saved(const pl_cache *c, size_t length, size_t i)
{
    bool earlier = i + 1 < pl_cache_states_saved(c, length);
    return earlier ? find(c, length - length % border(c))->page : c->state;
}

const uint8_t *pl_cache_states_get(const pl_cache *c, const store *l, size_t i)
{
    return saved(c, c->length, i)->data + l->state_at;
}

/* An empty cache gets its states with the first layer's. At a border the state is the kept one. */
static pleach_status open_saved(pl_cache *c, size_t length, pleach_error *err)
{
    size_t last = length - length % border(c);
    PL_TRY(open_state(c, &c->state, err));
    if (last == 0) return PLEACH_OK;
    page *p;
    if (last == length)
        p = page_share(c->state);
    else
        PL_TRY(open_state(c, &p, err));
    c->kept[c->n_kept++] = (state){last, p};
    return PLEACH_OK;
}

pleach_status pl_cache_states_set(pl_cache *c, const store *l, size_t length, const uint8_t *data,
                                  pleach_error *err)
{
    c->length = length;
    if (length == 0) return PLEACH_OK;
    if (!c->state) PL_TRY(open_saved(c, length, err));
    for (size_t i = 0; i < pl_cache_states_saved(c, length); i++)
        memcpy(saved(c, length, i)->data + l->state_at, data + i * l->state_bytes, l->state_bytes);
    return PLEACH_OK;
}
