/* SPDX-License-Identifier: Apache-2.0 */
#include "pages.h"

#include <assert.h>
#include <string.h>

#include "base/memory.h"

enum { SLAB = 2 << 20 }; /* what the driver hands out at least */

/* A thread's current device is its own. */
static void enter(pl_cuda_pages *p)
{
    pthread_mutex_lock(p->lock);
    cudaSetDevice(p->d->index);
}

/* ---- slabs ----------------------------------------------------------------------------------- */

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

static pl_cuda_page_class *class_of(pl_cuda_pages *p, size_t bytes)
{
    bytes = round_up(bytes, 256);
    for (size_t i = 0; i < p->n_classes; i++)
        if (p->classes[i].bytes == bytes) return &p->classes[i];
    if (p->n_classes == PL_CUDA_PAGE_CLASSES) return NULL;
    pl_cuda_page_class *c = &p->classes[p->n_classes++];
    *c = (pl_cuda_page_class){.bytes = bytes, .per_slab = PL_MAX(SLAB / bytes, (size_t)1)};
    return c;
}

/* The slab that a page lies in: mostly that of the page before. */
static struct pl_cuda_slab *slab_of(pl_cuda_page_class *c, const void *page)
{
    for (size_t i = 0; i < c->n_slabs; i++, c->last++) {
        if (c->last >= c->n_slabs) c->last = 0;
        uintptr_t at = (uintptr_t)page - (uintptr_t)c->slabs[c->last].base;
        if (at < c->per_slab * c->bytes) return &c->slabs[c->last];
    }
    assert(!"a page of no slab");
    return NULL;
}

/* The lists grow first, so that giving back cannot fail. */
static pleach_status add_slab(pl_cuda_pages *p, pl_cuda_page_class *c, pleach_error *err)
{
    size_t pages = (c->n_slabs + 1) * c->per_slab;
    uint8_t *base;
    if (pl_grow((void **)&c->slabs, &c->slabs_capacity, c->n_slabs + 1, sizeof *c->slabs) ||
        pl_grow((void **)&c->free, &c->free_capacity, pages, sizeof *c->free))
        return pl_fail_memory(err, "attention cache", pages * sizeof *c->free);
    PL_TRY(pl_cuda_alloc(p->d, (void **)&base, c->per_slab * c->bytes, "attention cache", err));
    c->slabs[c->n_slabs++] = (struct pl_cuda_slab){base, c->per_slab};
    for (size_t i = c->per_slab; i-- > 0;) c->free[c->n_free++] = base + i * c->bytes;
    return PLEACH_OK;
}

static void trim_class(pl_cuda_page_class *c)
{
    size_t kept = 0;
    for (size_t i = 0; i < c->n_free; i++)
        if (slab_of(c, c->free[i])->free < c->per_slab) c->free[kept++] = c->free[i];
    c->n_free = kept;
    kept = 0;
    for (size_t i = 0; i < c->n_slabs; i++)
        if (c->slabs[i].free < c->per_slab)
            c->slabs[kept++] = c->slabs[i];
        else
            pl_cuda_free(c->slabs[i].base);
    c->n_slabs = kept;
}

void pl_cuda_pages_trim(pl_cuda_pages *p)
{
    for (size_t i = 0; i < p->n_classes; i++) trim_class(&p->classes[i]);
}

/* ---- the memory of caches -------------------------------------------------------------------- */

static pleach_status take_page(pl_cuda_pages *p, size_t bytes, void **out, pleach_error *err)
{
    pl_cuda_page_class *c = class_of(p, bytes);
    PL_FAIL_IF(!c, err, PLEACH_ERR_LIMIT, "attention caches of more than %d page sizes",
               PL_CUDA_PAGE_CLASSES);
    if (c->n_free == 0 && add_slab(p, c, err) != PLEACH_OK) {
        pl_cuda_pages_trim(p);
        PL_TRY(add_slab(p, c, err));
    }
    *out = c->free[--c->n_free];
    slab_of(c, *out)->free--;
    return PLEACH_OK;
}

static pleach_status take(pl_page_memory *m, size_t bytes, void **out, pleach_error *err)
{
    pl_cuda_pages *p = (pl_cuda_pages *)m;
    enter(p);
    pleach_status status = take_page(p, bytes, out, err);
    pthread_mutex_unlock(p->lock);
    return status;
}

static void give(pl_page_memory *m, void *page, size_t bytes)
{
    pl_cuda_pages *p = (pl_cuda_pages *)m;
    pthread_mutex_lock(p->lock);
    pl_cuda_page_class *c = class_of(p, bytes);
    c->free[c->n_free++] = page;
    slab_of(c, page)->free++;
    pthread_mutex_unlock(p->lock);
}

static pleach_status copy(pl_page_memory *m, void *dst, const void *src, size_t bytes,
                          pleach_error *err)
{
    pl_cuda_pages *p = (pl_cuda_pages *)m;
    enter(p);
    pleach_status status = pl_cuda_check(
        cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToDevice, p->d->stream),
        "copying on the device", err);
    pthread_mutex_unlock(p->lock);
    return status;
}

static pleach_status read_page(pl_page_memory *m, const pl_page_shape *s, void *dst,
                               const void *page, pleach_error *err)
{
    pl_cuda_pages *p = (pl_cuda_pages *)m;
    void *raw = pl_alloc(1, s->bytes);
    if (!raw) return pl_fail_memory(err, "page", s->bytes);
    enter(p);
    pleach_status status = pl_cuda_download(p->d, raw, page, s->bytes, err);
    pthread_mutex_unlock(p->lock);
    if (status == PLEACH_OK) pl_cuda_kv_to_host(s->type, s->heads, s->dim, dst, raw);
    pl_free(raw);
    return status;
}

static pleach_status write_page(pl_page_memory *m, const pl_page_shape *s, void *page,
                                const void *src, pleach_error *err)
{
    pl_cuda_pages *p = (pl_cuda_pages *)m;
    void *raw = pl_alloc(1, s->bytes);
    if (!raw) return pl_fail_memory(err, "page", s->bytes);
    pl_cuda_kv_from_host(s->type, s->heads, s->dim, raw, src);
    enter(p);
    pleach_status status = pl_cuda_upload(p->d, page, raw, s->bytes, err);
    pthread_mutex_unlock(p->lock);
    pl_free(raw);
    return status;
}

/* ---- layouts --------------------------------------------------------------------------------- */

typedef struct pl_cuda_mirror {
    pl_cuda_layout *layout;
    uint32_t slot;
    bool current; /* the tables are those of `changes` */
    uint64_t changes;
} pl_cuda_mirror;

static void forget(pl_page_memory *m, void *mirror_)
{
    pl_cuda_pages *p = (pl_cuda_pages *)m;
    pl_cuda_mirror *mirror = mirror_;
    pthread_mutex_lock(p->lock);
    mirror->layout->users[mirror->slot] = NULL;
    pthread_mutex_unlock(p->lock);
    pl_free(mirror);
}

static void drop_graph(pl_cuda_graph *g)
{
    if (g->exec) cudaGraphExecDestroy(g->exec);
    *g = (pl_cuda_graph){0};
}

pl_cuda_graph *pl_cuda_layout_graph(pl_cuda_layout *l, size_t n, size_t length, bool *seen)
{
    pl_cuda_graph *oldest = l->graphs, *found = NULL;
    for (pl_cuda_graph *g = l->graphs; g < l->graphs + PL_CUDA_GRAPHS; g++) {
        if (g->n == n && g->length == length) found = g;
        if (g->used < oldest->used) oldest = g;
    }
    *seen = found != NULL;
    if (!found) {
        found = oldest;
        drop_graph(found);
        found->n = n;
        found->length = length;
    }
    found->used = ++l->steps;
    return found;
}

void pl_cuda_layout_drop_graphs(pl_cuda_layout *l)
{
    for (int i = 0; i < PL_CUDA_GRAPHS; i++) drop_graph(&l->graphs[i]);
}

static void layout_close(pl_cuda_layout *l)
{
    pl_cuda_layout_drop_graphs(l);
    pl_cuda_free(l->tables);
    pl_free(l->users);
    pl_free(l->types);
    pl_free(l->recent_stores);
    pl_free(l);
}

static bool same_make(const pl_cuda_layout *l, const pl_cache *c)
{
    if (l->n_stores != pl_cache_stores(c) || l->recent != pl_cache_recent(c)) return false;
    for (uint32_t i = 0; i < l->n_layers; i++)
        if (l->types[i] != pl_cache_type(c, i)) return false;
    return true;
}

pleach_status pl_cuda_layout_of(pl_cuda_pages *p, const pl_cache *c, pl_cuda_layout **out,
                                pleach_error *err)
{
    uint32_t n = pl_cache_layers(c);
    for (*out = p->layouts; *out; *out = (*out)->next)
        if (same_make(*out, c)) return PLEACH_OK;
    pl_cuda_layout *l = pl_calloc(1, sizeof *l);
    if (!l) return pl_fail_memory(err, "page tables", sizeof *l);
    l->n_layers = n;
    l->n_stores = pl_cache_stores(c);
    l->recent = pl_cache_recent(c);
    l->types = pl_alloc(n, sizeof *l->types);
    l->recent_stores = pl_alloc(n, sizeof *l->recent_stores);
    if (!l->types || !l->recent_stores) {
        layout_close(l);
        return pl_fail_memory(err, "page tables", n * sizeof *l->recent_stores);
    }
    for (uint32_t i = 0; i < n; i++) {
        l->types[i] = pl_cache_type(c, i);
        l->recent_stores[i] = pl_cache_recent_store(c, i);
    }
    l->next = p->layouts;
    *out = p->layouts = l;
    return PLEACH_OK;
}

/* Larger tables, empty: those of all caches are written anew when they are next used. */
static pleach_status grow_tables(pl_cuda_pages *p, pl_cuda_layout *l, size_t slots, size_t stride,
                                 pleach_error *err)
{
    void **tables;
    pl_cuda_mirror **users = pl_calloc(slots, sizeof *users);
    if (!users) return pl_fail_memory(err, "page tables", slots * sizeof *users);
    pleach_status status =
        pl_cuda_alloc(p->d, (void **)&tables, l->n_stores * slots * stride * sizeof *tables,
                      "page tables", err);
    if (status != PLEACH_OK) {
        pl_free(users);
        return status;
    }
    for (size_t i = 0; i < l->slots; i++) {
        users[i] = l->users[i];
        if (users[i]) users[i]->current = false;
    }
    pl_cuda_layout_drop_graphs(l);
    pl_cuda_free(l->tables);
    pl_free(l->users);
    l->tables = tables;
    l->users = users;
    l->slots = slots;
    l->stride = stride;
    return PLEACH_OK;
}

/* The cache's mirror; one that has none gets a free slot. */
static pleach_status mirror_of(pl_cuda_pages *p, pl_cuda_layout *l, pl_cache *c,
                               pl_cuda_mirror **out, pleach_error *err)
{
    void **at = pl_cache_mirror(c);
    size_t slot = 0;
    *out = *at;
    if (*out) return PLEACH_OK;
    while (slot < l->slots && l->users[slot]) slot++;
    if (slot == l->slots)
        PL_TRY(grow_tables(p, l, PL_MAX(2 * l->slots, (size_t)8), PL_MAX(l->stride, (size_t)16),
                           err));
    pl_cuda_mirror *m = pl_calloc(1, sizeof *m);
    if (!m) return pl_fail_memory(err, "page tables", sizeof *m);
    m->layout = l;
    m->slot = (uint32_t)slot;
    *at = *out = l->users[slot] = m;
    return PLEACH_OK;
}

/* The tables of all stores [n_stores][pages], to the cache's place. */
static pleach_status write_tables(pl_cuda_pages *p, const pl_cuda_layout *l, const pl_cache *c,
                                  size_t slot, size_t pages, pleach_error *err)
{
    size_t pitch = l->slots * l->stride * sizeof(void *), width = pages * sizeof(void *);
    void **rows = pl_calloc(l->n_stores, width);
    if (!rows) return pl_fail_memory(err, "page tables", l->n_stores * width);
    for (size_t s = 0; s < l->n_stores; s++) pl_cache_table(c, s, rows + s * pages, pages);
    pleach_status status =
        pl_cuda_check(cudaMemcpy2DAsync(l->tables + slot * l->stride, pitch, rows, width, width,
                                        l->n_stores, cudaMemcpyHostToDevice, p->d->stream),
                      "copying page tables", err);
    if (status == PLEACH_OK) status = pl_cuda_sync(p->d, err);
    pl_free(rows);
    return status;
}

pleach_status pl_cuda_layout_update(pl_cuda_pages *p, pl_cuda_layout *l, pl_cache *c,
                                    uint32_t *slot, pleach_error *err)
{
    size_t pages = 0, stride = PL_MAX(l->stride, (size_t)16);
    pl_cuda_mirror *m;
    for (size_t s = 0; s < l->n_stores; s++) pages = PL_MAX(pages, pl_cache_table(c, s, NULL, 0));
    while (stride < pages) stride *= 2;
    if (stride > l->stride)
        PL_TRY(grow_tables(p, l, PL_MAX(l->slots, (size_t)8), stride, err));
    PL_TRY(mirror_of(p, l, c, &m, err));
    *slot = m->slot;
    if (m->current && m->changes == pl_cache_changes(c)) return PLEACH_OK;
    PL_TRY(write_tables(p, l, c, m->slot, pages, err));
    m->current = true;
    m->changes = pl_cache_changes(c);
    return PLEACH_OK;
}

pl_cuda_kv pl_cuda_layout_kv(const pl_cuda_layout *l, uint32_t layer, uint32_t n_kv_heads,
                             uint32_t head_dim, uint32_t window)
{
    size_t store = l->slots * l->stride, recent = l->recent_stores[layer];
    return (pl_cuda_kv){.type = l->types[layer],
                        .n_kv_heads = n_kv_heads,
                        .head_dim = head_dim,
                        .window = window,
                        .recent = recent ? (uint32_t)(l->recent / PL_CACHE_PAGE) : 0,
                        .pages = l->tables + layer * store,
                        .recent_pages = recent ? l->tables + recent * store : NULL,
                        .pages_stride = l->stride};
}

/* ---- opening --------------------------------------------------------------------------------- */

void pl_cuda_pages_open(pl_cuda_pages *p, pl_cuda *d, pthread_mutex_t *lock)
{
    *p = (pl_cuda_pages){.base = {.take = take,
                                  .give = give,
                                  .copy = copy,
                                  .read = read_page,
                                  .write = write_page,
                                  .forget = forget},
                         .d = d,
                         .lock = lock};
}

void pl_cuda_pages_close(pl_cuda_pages *p)
{
    while (p->layouts) {
        pl_cuda_layout *next = p->layouts->next;
        layout_close(p->layouts);
        p->layouts = next;
    }
    for (size_t i = 0; i < p->n_classes; i++) {
        pl_cuda_page_class *c = &p->classes[i];
        for (size_t s = 0; s < c->n_slabs; s++) pl_cuda_free(c->slabs[s].base);
        pl_free(c->slabs);
        pl_free(c->free);
    }
}
