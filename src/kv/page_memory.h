/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the pages of a cache are: in this process's memory, or in a device's, whose kernels then
 * fill and read them. The cache keeps the same books of both. */
#ifndef PL_KV_PAGE_MEMORY_H
#define PL_KV_PAGE_MEMORY_H

#include "kv_type.h"

/* What a page holds: PL_CACHE_PAGE tokens of `heads` heads. */
typedef struct pl_page_shape {
    pl_kv type;
    uint32_t heads, dim;
    size_t bytes;
} pl_page_shape;

/* Any thread may call any of them, for pages of its own. What is queued on the device keeps its
 * order: a page given back and taken again holds no surprise for work begun before. */
typedef struct pl_page_memory pl_page_memory;
struct pl_page_memory {
    /* Contents undefined. */
    pleach_status (*take)(pl_page_memory *m, size_t bytes, void **out, pleach_error *err);
    void (*give)(pl_page_memory *m, void *page, size_t bytes);
    pleach_status (*copy)(pl_page_memory *m, void *dst, const void *src, size_t bytes,
                          pleach_error *err);
    /* A page to and from the layout that cache.c gives it in this process's memory. */
    pleach_status (*read)(pl_page_memory *m, const pl_page_shape *s, void *dst, const void *page,
                          pleach_error *err);
    pleach_status (*write)(pl_page_memory *m, const pl_page_shape *s, void *page, const void *src,
                           pleach_error *err);
    /* A cache that had this mirror (pl_cache_mirror) is closed. */
    void (*forget)(pl_page_memory *m, void *mirror);
};

#endif
