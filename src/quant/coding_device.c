/* SPDX-License-Identifier: Apache-2.0
 *
 * Devices by name. */
#include "coding_device.h"

#include <string.h>

#ifdef PLEACH_CUDA
#include "cuda/coder.h"
#endif

pleach_status pl_coding_device_open(const char *name, pl_coding_device **out, pleach_error *err)
{
    *out = NULL;
    if (!name || strcmp(name, "cpu") == 0) return PLEACH_OK;
    PL_FAIL_IF(strncmp(name, "cuda", 4) != 0, err, PLEACH_ERR_ARGUMENT,
               "unknown device '%.40s': expected cpu, cuda or cuda:N", name);
#ifdef PLEACH_CUDA
    return pl_cuda_coder_open(name, out, err);
#else
    return pl_fail(err, PLEACH_ERR_UNSUPPORTED,
                   "device %.40s: this build has no CUDA: it was made without -DPLEACH_CUDA=ON",
                   name);
#endif
}

void pl_coding_device_close(pl_coding_device *d)
{
    if (d) d->close(d);
}
