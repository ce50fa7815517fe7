/* SPDX-License-Identifier: Apache-2.0
 *
 * Filling the table: portable C first, then each level overwrites what it improves. */
#include "kernels.h"

#include <string.h>

#include "base/compiler.h"
#include "base/cpu.h"

int pl_compute_threads(const pl_compute *c, size_t operations)
{
    size_t worth = 1 + operations / c->kernels.crossovers.thread_operations;
    size_t most = (size_t)pl_pool_threads(c->pool);
    return (int)PL_MIN(worth, most);
}

void pl_kernels_init(pl_kernels *k, unsigned cpu)
{
    memset(k, 0, sizeof *k);
    k->cpu = cpu;
    k->crossovers = *pl_crossovers_of(cpu);
    pl_kernels_init_viterbi_c(k);
    pl_kernels_init_rotate_c(k);
    pl_kernels_init_vector_c(k);
    pl_kernels_init_product_c(k);
    pl_kernels_init_affine_c(k);
    pl_kernels_init_trellis_c(k);
    pl_kernels_init_float_c(k);
    pl_kernels_init_attention_c(k);
    pl_kernels_init_packed_c(k);
    pl_kernels_init_delta_c(k);
#if defined(__x86_64__)
    if (!(cpu & PL_CPU_AVX2)) return;
    pl_kernels_init_viterbi_avx2(k);
    pl_kernels_init_rotate_avx2(k);
    pl_kernels_init_vector_avx2(k);
    pl_kernels_init_product_avx2(k);
    pl_kernels_init_affine_avx2(k);
    pl_kernels_init_trellis_avx2(k);
    pl_kernels_init_float_avx2(k);
    pl_kernels_init_attention_avx2(k);
    pl_kernels_init_packed_avx2(k);
    pl_kernels_init_delta_avx2(k);
    if (!(cpu & PL_CPU_AVX512)) return;
    pl_kernels_init_viterbi_avx512(k);
    pl_kernels_init_rotate_avx512(k);
    pl_kernels_init_vector_avx512(k);
    pl_kernels_init_product_avx512(k);
    pl_kernels_init_affine_avx512(k);
    pl_kernels_init_trellis_avx512(k);
    pl_kernels_init_float_avx512(k);
    pl_kernels_init_packed_avx512(k);
    pl_kernels_init_delta_avx512(k);
    if (cpu & PL_CPU_AVX512BF16) pl_kernels_init_float_avx512bf16(k);
#elif defined(__aarch64__)
    if (!(cpu & PL_CPU_NEON)) return;
    pl_kernels_init_viterbi_neon(k);
    pl_kernels_init_rotate_neon(k);
    pl_kernels_init_vector_neon(k);
    pl_kernels_init_product_neon(k);
    pl_kernels_init_affine_neon(k);
    pl_kernels_init_trellis_neon(k);
    pl_kernels_init_expand_neon(k);
    pl_kernels_init_float_neon(k);
    pl_kernels_init_attention_neon(k);
    pl_kernels_init_packed_neon(k);
    pl_kernels_init_delta_neon(k);
    if (!(cpu & PL_CPU_DOTPROD)) return;
    pl_kernels_init_trellis_dotprod(k);
#endif
}
