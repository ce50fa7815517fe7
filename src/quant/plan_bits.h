/* SPDX-License-Identifier: Apache-2.0
 *
 * Bits of single modules: by pattern, and by a plan file (docs/quantize.md, "Plan files"). */
#ifndef PL_QUANT_PLAN_BITS_H
#define PL_QUANT_PLAN_BITS_H

#include <jansson.h>

#include "plan.h"

/* Sets the bits of a module in the trellis, and its bytes. */
void pl_item_set_bits(pl_plan_item *item, uint32_t k);

/* Does what settings.plan and settings.bits_for say. The plan must be of this model: name every
 * module in the trellis, by its shape, and no other. */
pleach_status pl_plan_bits(pl_plan *plan, pleach_error *err);

/* Module name to k for all in the trellis; NULL when out of memory. */
json_t *pl_plan_bits_json(const pl_plan *plan);

#endif
