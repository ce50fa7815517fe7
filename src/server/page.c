/* SPDX-License-Identifier: Apache-2.0 */
#include "page.h"

#include <string.h>

const pl_page_file *pl_page_find(const char *path)
{
    if (strcmp(path, "/") == 0) path = "/index.html";
    for (const pl_page_file *f = pl_page_files; f->path; f++)
        if (strcmp(f->path, path) == 0) return f;
    return NULL;
}
