/* SPDX-License-Identifier: Apache-2.0 */
#include "kept.h"

#include <string.h>

#include "base/memory.h"

/* Tables and ids of very many short sequences would weigh more than their pages. */
enum { MOST_KEPT = 256 };

static size_t same_ids(const pleach_session *s, const int32_t *ids, size_t n)
{
    size_t most = PL_MIN(n, pl_cache_length(s->cache)), same = 0;
    while (same < most && s->ids[same] == ids[same]) same++;
    return same;
}

/* Whether a is the beginning of b, and b serves whoever a would serve. */
static bool is_within(const pleach_session *a, const pleach_session *b)
{
    size_t n = pl_cache_length(a->cache);
    return pl_cache_covers(b->cache, a->cache) && same_ids(b, a->ids, n) == n;
}

static void remove_item(pl_kept *k, size_t i)
{
    pleach_session_close(k->items[i].session);
    k->items[i] = k->items[--k->n];
}

bool pl_kept_drop(pl_kept *k)
{
    size_t oldest = 0;
    if (k->n == 0) return false;
    for (size_t i = 1; i < k->n; i++)
        if (k->items[i].used < k->items[oldest].used) oldest = i;
    remove_item(k, oldest);
    return true;
}

void pl_kept_trim(pl_kept *k)
{
    do {
        double bytes = 0;
        for (size_t i = 0; i < k->n; i++) bytes += pl_cache_share(k->items[i].session->cache);
        k->bytes = (uint64_t)(bytes + 0.5);
    } while ((k->bytes > k->most || k->n > MOST_KEPT) && pl_kept_drop(k));
}

void pl_kept_add(pl_kept *k, pleach_session *s)
{
    bool wanted = k->most > 0 && pl_cache_length(s->cache) > 0;
    for (size_t i = 0; wanted && i < k->n; i++)
        if (is_within(s, k->items[i].session)) {
            k->items[i].used = ++k->clock;
            wanted = false;
        }
    if (!wanted || pl_grow((void **)&k->items, &k->capacity, k->n + 1, sizeof *k->items)) {
        pleach_session_close(s);
        return;
    }
    for (size_t i = k->n; i-- > 0;)
        if (is_within(k->items[i].session, s)) remove_item(k, i);
    k->items[k->n++] = (struct pl_kept_item){s, ++k->clock};
    pl_kept_trim(k);
}

void pl_kept_close(pl_kept *k)
{
    while (pl_kept_drop(k)) {}
    pl_free(k->items);
}

void pl_prefix_consider(pl_prefix *p, const pleach_session *s, const int32_t *prompt, size_t n)
{
    size_t same = same_ids(s, prompt, n), reach = pl_cache_reach(s->cache, same);
    p->same = PL_MAX(p->same, same);
    if (reach <= p->reach) return;
    p->session = s;
    p->reach = reach;
}

void pl_kept_find(pl_kept *k, pl_prefix *p, const int32_t *prompt, size_t n)
{
    for (size_t i = 0; i < k->n; i++) pl_prefix_consider(p, k->items[i].session, prompt, n);
    for (size_t i = 0; i < k->n; i++)
        if (k->items[i].session == p->session) k->items[i].used = ++k->clock;
}
