/* SPDX-License-Identifier: Apache-2.0
 *
 * The version of the linked library. */
#include "pleach/pleach.h"

const char *pleach_version(void) { return PLEACH_VERSION; }
