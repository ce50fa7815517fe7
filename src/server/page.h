/* SPDX-License-Identifier: Apache-2.0
 *
 * The chat page: the files of src/server/page, inside the program. */
#ifndef PL_SERVER_PAGE_H
#define PL_SERVER_PAGE_H

#include <stddef.h>

typedef struct pl_page_file {
    const char *path; /* as asked for: "/style.css" */
    const char *type; /* of Content-Type */
    const char *etag; /* strong, quotes included: the SHA-256 of the bytes */
    const unsigned char *bytes;
    size_t size;
} pl_page_file;

/* Ended by an entry without a path. Written by the build (src/server/page.cmake). */
extern const pl_page_file pl_page_files[];

/* What the page may do, for Content-Security-Policy: nothing but its own files and this server. */
#define PL_PAGE_POLICY                                                                             \
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "                    \
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

/* The file at a path ("/" is the page itself), or NULL. */
const pl_page_file *pl_page_find(const char *path);

#endif
