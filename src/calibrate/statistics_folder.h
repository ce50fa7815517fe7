/* SPDX-License-Identifier: Apache-2.0
 *
 * A statistics folder while calibration works in it: a lock, and a statistics.json that binds what
 * lies there. */
#ifndef PL_CALIBRATE_STATISTICS_FOLDER_H
#define PL_CALIBRATE_STATISTICS_FOLDER_H

#include "statistics_file.h"

typedef struct pl_statistics_folder {
    const char *dir; /* borrowed */
    int lock;        /* file descriptor */
    pl_statistics_head head;
} pl_statistics_folder;

/* Makes the folder, or takes over one with the same binding and info. PLEACH_ERR_EXISTS when it
 * holds something else or another process works there. */
pleach_status pl_statistics_folder_open(pl_statistics_folder *f, const char *dir,
                                        const json_t *binding, const pl_statistics_info *info,
                                        pleach_error *err);
void pl_statistics_folder_close(pl_statistics_folder *f); /* accepts a failed one */
/* All blocks are there: checks them, counts what was left out, and says so in statistics.json. */
pleach_status pl_statistics_folder_finish(pl_statistics_folder *f, const pl_config *config,
                                          pleach_error *err);

#endif
