/* SPDX-License-Identifier: Apache-2.0
 *
 * Pleach: large language models in 2, 3 or 4 bits a weight, and an engine that runs them.
 * This header brings in the whole public API. */
#ifndef PLEACH_PLEACH_H
#define PLEACH_PLEACH_H

#include "status.h"
#include "trellis.h"
#include "checkpoint.h"
#include "model.h"
#include "session.h"
#include "batch.h"
#include "quantize.h"
#include "eval.h"

#define PLEACH_VERSION_MAJOR 0
#define PLEACH_VERSION_MINOR 1
#define PLEACH_VERSION_PATCH 0
#define PLEACH_VERSION "0.1.0"

#ifdef __cplusplus
extern "C" {
#endif

/* PLEACH_VERSION of the library that is linked. Static storage. */
PLEACH_API const char *pleach_version(void);

#ifdef __cplusplus
}
#endif
#endif
