/* SPDX-License-Identifier: Apache-2.0
 *
 * A cache seen as pages: what they take, and how the session file has them. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "cache_store.h"

void **pl_cache_mirror(pl_cache *c)
{
    return &c->mirror;
}

uint64_t pl_cache_changes(const pl_cache *c)
{
    return c->changes;
}

size_t pl_cache_table(const pl_cache *c, size_t number, void **pages, size_t n)
{
    const store *l = &c->stores[number];
    for (size_t i = 0; i < PL_MIN(n, l->n_pages); i++)
        pages[i] = l->pages[i] ? l->pages[i]->data : NULL;
    return l->n_pages;
}

size_t pl_cache_recent_store(const pl_cache *c, uint32_t layer)
{
    return c->stores[layer].recent_store;
}

size_t pl_cache_stores(const pl_cache *c)
{
    return c->n_stores;
}

void pl_cache_store_name(const pl_cache *c, size_t number, char name[PL_CACHE_STORE_NAME])
{
    const store *l = &c->stores[number];
    snprintf(name, PL_CACHE_STORE_NAME, "layers.%u.%s", l->layer,
             l->state_bytes ? "state" : l->block ? "recent" : "pages");
}

size_t pl_cache_page_bytes(const pl_cache *c, size_t number)
{
    const store *l = &c->stores[number];
    return l->state_bytes ? l->state_bytes : page_bytes(c, l);
}

size_t pl_cache_kept_pages(const pl_cache *c, size_t number)
{
    const store *l = &c->stores[number];
    if (l->state_bytes) return pl_cache_states_saved(c, c->length);
    return pages_of(c->length) - PL_MAX(l->first, first_kept(l, c->length));
}

bool pl_cache_pages_suffice(const pl_cache *c, size_t number, size_t length, size_t pages)
{
    size_t all = pages_of(length);
    if (c->stores[number].state_bytes) return pages == pl_cache_states_saved(c, length);
    return pages <= all && all - pages <= first_seen(&c->stores[number], length);
}

/* rows x [PL_CACHE_PAGE] numbers of `size` bytes: those of the tokens from n on become 0. */
static void clear_rows(uint8_t *at, size_t rows, size_t size, size_t n)
{
    for (size_t r = 0; r < rows; r++, at += PL_CACHE_PAGE * size)
        memset(at + n * size, 0, (PL_CACHE_PAGE - n) * size);
}

static void clear_run(const pl_cache *c, const store *l, uint8_t *run, bool value, size_t n)
{
    size_t bytes = (value ? l->value_bytes : l->key_bytes) / PL_CACHE_PAGE, scales = 0;
    if (pl_kv_is_packed(l->type))
        scales = (value ? 1 : 2) * pl_turboquant_groups(c->head_dim, PL_TURBOQUANT_GROUP);
    clear_rows(run, 1, bytes - 2 * scales, n);
    clear_rows(run + PL_CACHE_PAGE * (bytes - 2 * scales), scales, 2, n);
}

pleach_status pl_cache_get_page(const pl_cache *c, size_t number, size_t i, void *dst,
                                pleach_error *err)
{
    const store *l = &c->stores[number];
    if (l->state_bytes) {
        memcpy(dst, pl_cache_states_get(c, l, i), l->state_bytes);
        return PLEACH_OK;
    }
    size_t at = pages_of(c->length) - pl_cache_kept_pages(c, number) + i;
    size_t n = PL_MIN(c->length - at * PL_CACHE_PAGE, PL_CACHE_PAGE);
    uint8_t *to = dst;
    pl_page_shape shape = page_shape(c, l);
    if (c->memory)
        PL_TRY(c->memory->read(c->memory, &shape, to, l->pages[at]->data, err));
    else
        memcpy(to, l->pages[at]->data, shape.bytes);
    for (uint32_t h = 0; n < PL_CACHE_PAGE && h < c->n_heads; h++) {
        clear_run(c, l, to, false, n);
        clear_run(c, l, to + l->key_bytes, true, n);
        to += l->key_bytes + l->value_bytes;
    }
    return PLEACH_OK;
}

pleach_status pl_cache_set_pages(pl_cache *c, size_t number, size_t length, const void *data,
                                 size_t pages, pleach_error *err)
{
    store *l = &c->stores[number];
    size_t all = pages_of(length);
    pl_page_shape shape = page_shape(c, l);
    if (l->state_bytes) return pl_cache_states_set(c, l, length, data, err);
    assert(l->n_pages == 0 && pl_cache_pages_suffice(c, number, length, pages));
    if (pl_grow((void **)&l->pages, &l->pages_capacity, all, sizeof *l->pages))
        return pl_fail_memory(err, "attention cache", all * sizeof *l->pages);
    if (all > pages) memset(l->pages, 0, (all - pages) * sizeof *l->pages);
    l->first = l->n_pages = all - pages;
    for (size_t i = 0; i < pages; i++) {
        const uint8_t *from = (const uint8_t *)data + i * shape.bytes;
        page *p;
        PL_TRY(pl_cache_page_open(c, l, &p, err));
        l->pages[l->n_pages++] = p;
        if (c->memory)
            PL_TRY(c->memory->write(c->memory, &shape, p->data, from, err));
        else
            memcpy(p->data, from, shape.bytes);
    }
    c->changes++;
    c->length = length;
    return PLEACH_OK;
}

/* ---- sizes ----------------------------------------------------------------------------------- */

pl_kv pl_cache_type(const pl_cache *c, uint32_t layer)
{
    return c->stores[layer].type;
}
uint32_t pl_cache_layers(const pl_cache *c)
{
    return c->n_layers;
}
size_t pl_cache_capacity(const pl_cache *c)
{
    return c->capacity;
}
size_t pl_cache_recent(const pl_cache *c)
{
    return c->recent;
}

uint64_t pl_cache_bytes(const pl_cache *c)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < c->n_stores; i++) {
        const store *l = &c->stores[i];
        bytes += (uint64_t)(l->n_pages - l->first) * page_bytes(c, l);
    }
    return bytes + pl_cache_states_held(c) * (uint64_t)c->state_bytes;
}

double pl_cache_share(const pl_cache *c)
{
    double bytes = 0;
    for (size_t i = 0; i < c->n_stores; i++) {
        const store *l = &c->stores[i];
        double pages = 0;
        for (size_t p = l->first; p < l->n_pages; p++) pages += page_part(l->pages[p]);
        bytes += pages * (double)page_bytes(c, l);
    }
    return bytes + pl_cache_states_in_parts(c) * (double)c->state_bytes;
}

uint64_t pl_cache_token_bytes(const pl_cache *c)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < c->n_layers; i++) bytes += page_bytes(c, &c->stores[i]);
    return bytes / PL_CACHE_PAGE;
}

/* The most pages of a store, in a cache that tokens never end in. Those of recent tokens run from
 * the beginning of a block to the end of a batch that begins at its last token; those of a window,
 * one more than it touches, to the end of a batch. */
static size_t most_pages(const store *l, size_t batch)
{
    if (l->block) return l->block + pages_of(batch - 1);
    return l->window ? pages_of(l->window + PL_CACHE_PAGE - 2 + batch) + 1 : SIZE_MAX;
}

uint64_t pl_cache_most_bytes(const pl_cache *c, size_t batch)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < c->n_stores; i++) {
        const store *l = &c->stores[i];
        bytes += (uint64_t)PL_MIN(most_pages(l, batch), pages_of(c->capacity)) * page_bytes(c, l);
    }
    return bytes + (2 + PL_CACHE_STATES) * (uint64_t)c->state_bytes;
}
