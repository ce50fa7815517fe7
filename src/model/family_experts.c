/* SPDX-License-Identifier: Apache-2.0
 *
 * Mixtral and Qwen3 MoE: the dense families with a mixture of experts in place of some or all
 * feed-forward parts. */
#include "family.h"

const pl_family pl_family_experts = {.name = "experts", .bind_layer = pl_bind_block};
