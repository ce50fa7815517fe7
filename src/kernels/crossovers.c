/* SPDX-License-Identifier: Apache-2.0
 *
 * The crossovers that ship. On which machines they were measured: docs/kernels.md, "Dispatch". */
#include "crossovers.h"

#include "base/cpu.h"

/* Levels whose kernels know one way alone: portable C and Arm. */
static const pl_crossovers one_way = {
    .register_rows = {{{4, 4, 4}, {4, 4, 4}},
                      {{4, 4, 4}, {4, 4, 4}},
                      {{4, 4, 4}, {4, 4, 4}},
                      {{4, 4, 4}, {4, 4, 4}}},
    .thread_operations = 1 << 17,
};

static const pl_crossovers avx2 = {
    .register_rows = {{{2, 2, 2}, {4, 4, 4}},
                      {{2, 2, 2}, {4, 4, 4}},
                      {{2, 2, 2}, {4, 4, 4}},
                      {{2, 2, 2}, {4, 4, 4}}},
    .thread_operations = 1 << 17,
};

static const pl_crossovers avx512 = {
    .register_rows = {{{4, 4, 4}, {4, 4, 4}},
                      {{3, 2, 4}, {4, 4, 4}},
                      {{4, 2, 4}, {4, 4, 4}},
                      {{4, 2, 4}, {4, 4, 4}}},
    .thread_operations = 1 << 16,
};

const pl_crossovers *pl_crossovers_of(unsigned cpu)
{
    return cpu & PL_CPU_AVX512 ? &avx512 : cpu & PL_CPU_AVX2 ? &avx2 : &one_way;
}
