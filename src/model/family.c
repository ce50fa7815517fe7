/* SPDX-License-Identifier: Apache-2.0
 *
 * Which family serves an architecture. */
#include "family.h"

const pl_family *pl_family_of(pl_arch arch)
{
    static const pl_family *const families[PL_ARCH_COUNT] = {
        [PL_ARCH_LLAMA] = &pl_family_llama,
        [PL_ARCH_MISTRAL] = &pl_family_llama,
        [PL_ARCH_QWEN2] = &pl_family_llama,
        [PL_ARCH_QWEN3] = &pl_family_llama,
        [PL_ARCH_GEMMA3] = &pl_family_gemma3,
        [PL_ARCH_MIXTRAL] = &pl_family_experts,
        [PL_ARCH_QWEN3_MOE] = &pl_family_experts,
        [PL_ARCH_QWEN35] = &pl_family_qwen35,
        [PL_ARCH_QWEN35_MOE] = &pl_family_qwen35,
    };
    return families[arch];
}
