/* SPDX-License-Identifier: Apache-2.0
 *
 * The work folder of a run, OUT.partial: a job file that binds it to its source, settings and
 * version, a lock, and one file for each finished module. */
#ifndef PL_QUANT_JOB_H
#define PL_QUANT_JOB_H

#include <jansson.h>

#include "base/pool.h"
#include "format/checkpoint.h"
#include "output_path.h"

typedef struct pl_job {
    const pl_output_path *path;
    int lock; /* file descriptor */
} pl_job;

/* Makes the work folder, or takes over one whose job file says the same as `binding` (an object of
 * objects and plain values). PLEACH_ERR_MISMATCH names the first field that differs, unless
 * `discard`: then the old work is removed. PLEACH_ERR_EXISTS when another process works there or
 * when the folder holds something else. */
pleach_status pl_job_open(pl_job *job, const pl_output_path *path, const json_t *binding,
                          bool discard, pleach_error *err);
void pl_job_close(pl_job *job);
/* After publishing: removes the work folder. */
pleach_status pl_job_remove(pl_job *job, pleach_error *err);

/* Path of the file of a finished module (pl_free). */
char *pl_job_part_path(const pl_job *job, const char *module, pleach_error *err);

/* What identifies a source: counts and a hash over names, types, shapes and every byte. Reads all
 * of it, a piece at a time. Fresh object, or NULL when out of memory. The same for every thread
 * count. */
json_t *pl_source_fingerprint(const pleach_checkpoint *c, pl_pool *pool);

#endif
