/* SPDX-License-Identifier: Apache-2.0
 *
 * Qwen3.5: layers of gated delta nets, and every fourth of gated attention, in which a quarter of
 * each head rotates; SwiGLU, or a mixture of experts with a shared one. Norms multiply by 1 + w, that
 * of the delta net by w. */
#include "family.h"

const pl_family pl_family_qwen35 = {.name = "qwen3.5", .bind_layer = pl_bind_block};
