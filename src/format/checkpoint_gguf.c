/* SPDX-License-Identifier: Apache-2.0
 *
 * A GGUF file as a checkpoint. */
#include "checkpoint_files.h"

pleach_status pl_checkpoint_open_gguf(pleach_checkpoint *c, pleach_error *err)
{
    return pl_fail(err, PLEACH_ERR_UNSUPPORTED, "%s: expected a folder", c->path);
}

void pl_gguf_close(pl_gguf *g) { (void)g; }
