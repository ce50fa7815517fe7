/* SPDX-License-Identifier: Apache-2.0
 *
 * The chat page's files as answers. Browsers keep them and ask each time whether they changed. */
#include <string.h>

#include "exchange.h"
#include "page.h"

/* Whether If-None-Match names the file: a list of tags or "*" (RFC 9110, 13.1.2). A tag is a quoted
 * hash: where it is found in the list it is a member, and "W/" before it makes no difference. */
static bool is_known(const pl_exchange *x, const pl_page_file *file)
{
    const char *known = x->if_none_match;
    return known && (strcmp(known, "*") == 0 || strstr(known, file->etag));
}

pleach_status pl_route_page(pl_exchange *x, pl_refusal *r)
{
    const pl_page_file *file = pl_page_find(x->path);
    x->page = file;
    x->content_type = file->type;
    x->status = is_known(x, file) ? 304 : 200;
    if (x->status == 304) return PLEACH_OK;
    if (pl_buffer_append(&x->out, (const char *)file->bytes, file->size, NULL) == PLEACH_OK)
        return PLEACH_OK;
    x->page = NULL;
    return pl_refuse_memory(r);
}
