/* SPDX-License-Identifier: Apache-2.0
 *
 * The dense families that go back to Llama: two norms a layer, attention, SwiGLU. They differ in
 * biases, norms of heads and windows, which the config says. */
#include "family.h"

const pl_family pl_family_llama = {.name = "llama", .bind_layer = pl_bind_block, .cuda = true};
