/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a written model goes: is it safe to write there, and putting a finished folder in place. */
#ifndef PL_QUANT_OUTPUT_PATH_H
#define PL_QUANT_OUTPUT_PATH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

/* The place of an output folder and of its work in progress. Owned strings. */
typedef struct pl_output_path {
    char *out;     /* as given, without trailing slashes */
    char *partial; /* OUT.partial: the work folder */
    char *staging; /* OUT.partial/out: the result until it is whole */
    char *parent;  /* the folder that holds OUT */
} pl_output_path;

/* Checks, before anything is written, that making `out` from `source` can harm nothing: OUT may
 * not be the source, hold it or lie inside it, whatever links and spellings lead there. An OUT that
 * exists is PLEACH_ERR_EXISTS unless `force`; then it must be a plain model folder (a config.json,
 * no folders inside) or an empty one. */
pleach_status pl_output_path_open(pl_output_path *p, const char *source, const char *out,
                                  bool force, pleach_error *err);
void pl_output_path_close(pl_output_path *p); /* accepts a zeroed one */

/* The part of it that concerns an OUT that exists. */
pleach_status pl_output_check_free(const pl_output_path *p, bool force, pleach_error *err);

/* True if OUT is what a run over this work folder already published (it was stopped before it
 * could remove the work folder). */
bool pl_output_published(const pl_output_path *p);

/* Makes an empty staging folder, whatever an earlier run left there. */
pleach_status pl_output_stage(const pl_output_path *p, pleach_error *err);

/* Puts the staging folder in place of OUT, in one step where the file system can, and removes an
 * old OUT only then. */
pleach_status pl_output_publish(const pl_output_path *p, pleach_error *err);

/* Removes the plain files in a folder, and the folder. Fails on a folder inside it. A folder that
 * does not exist is removed already. */
pleach_status pl_remove_flat_folder(const char *path, pleach_error *err);

/* Bytes a user may still write on the disk that holds `path`; UINT64_MAX when not known. */
uint64_t pl_disk_free(const char *path);

#endif
