/* SPDX-License-Identifier: Apache-2.0
 *
 * Pages of attention caches in device memory (kv/page_memory.h), taken in slabs, and tables of
 * them there for the kernels of attention.h. */
#ifndef PL_CUDA_PAGES_H
#define PL_CUDA_PAGES_H

#include <pthread.h>

#include "attention.h"
#include "device.h"

/* Pages of one size: slabs cut into them, and those that nobody has. */
typedef struct pl_cuda_page_class {
    size_t bytes, per_slab;
    struct pl_cuda_slab {
        uint8_t *base;
        size_t free;
    } *slabs;
    size_t n_slabs, slabs_capacity, last; /* last: the slab last looked for */
    void **free;
    size_t n_free, free_capacity;
} pl_cuda_page_class;

enum { PL_CUDA_PAGE_CLASSES = 32 }; /* page sizes in use at once: one per type of a cache */

typedef struct pl_cuda_layout pl_cuda_layout;

typedef struct pl_cuda_pages {
    pl_page_memory base; /* first */
    pl_cuda *d;
    pthread_mutex_t *lock; /* of all that is queued and taken on the device; the functions of `base`
                              take it, those below want it held */
    pl_cuda_page_class classes[PL_CUDA_PAGE_CLASSES];
    size_t n_classes;
    pl_cuda_layout *layouts;
} pl_cuda_pages;

void pl_cuda_pages_open(pl_cuda_pages *p, pl_cuda *d, pthread_mutex_t *lock);
void pl_cuda_pages_close(pl_cuda_pages *p); /* all caches are closed */
/* Slabs without a page in use go back to the device. */
void pl_cuda_pages_trim(pl_cuda_pages *p);

/* A step of n rows, captured. */
typedef struct pl_cuda_graph {
    size_t n, length;     /* n 0: free */
    cudaGraphExec_t exec; /* NULL: seen once, not captured yet */
    uint64_t used;        /* the layout's `steps` when it was last */
} pl_cuda_graph;

/* Of one layout; the one that was used longest ago makes room. */
enum { PL_CUDA_GRAPHS = 24 };

/* What caches of one make have in common: their tables, side by side, so that one call serves rows
 * of all of them, and the graphs that have these tables' address in them. */
struct pl_cuda_layout {
    pl_cuda_layout *next;
    uint32_t n_layers;
    size_t n_stores, recent; /* as the cache has them */
    pl_kv *types;            /* [n_layers] */
    size_t *recent_stores;   /* [n_layers], 0: none */
    void **tables;           /* device [n_stores][slots][stride] */
    size_t slots, stride;
    struct pl_cuda_mirror **users; /* [slots], NULL: free */
    pl_cuda_graph graphs[PL_CUDA_GRAPHS];
    uint64_t steps;
};

/* The layout of a cache's make. */
pleach_status pl_cuda_layout_of(pl_cuda_pages *p, const pl_cache *c, pl_cuda_layout **out,
                                pleach_error *err);
/* Brings the cache's tables up to date; *slot is its sequence in them. */
pleach_status pl_cuda_layout_update(pl_cuda_pages *p, pl_cuda_layout *l, pl_cache *c,
                                    uint32_t *slot, pleach_error *err);
/* One layer of all caches of the layout. */
pl_cuda_kv pl_cuda_layout_kv(const pl_cuda_layout *l, uint32_t layer, uint32_t n_kv_heads,
                             uint32_t head_dim, uint32_t window);
/* The step of n rows and positions below length: as it was seen before, or one without `exec`. */
pl_cuda_graph *pl_cuda_layout_graph(pl_cuda_layout *l, size_t n, size_t length, bool *seen);
void pl_cuda_layout_drop_graphs(pl_cuda_layout *l);

#endif
