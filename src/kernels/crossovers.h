/* SPDX-License-Identifier: Apache-2.0
 *
 * Where one way of computing a thing overtakes another: measured, for each level, by `pleach bench
 * --tune`. No bit of any result depends on them. */
#ifndef PL_KERNELS_CROSSOVERS_H
#define PL_KERNELS_CROSSOVERS_H

#include <stddef.h>
#include <stdint.h>

/* Kinds of trellis products; int16x2 is int16 with twice the rows. */
enum { PL_CROSS_INT16, PL_CROSS_INT8, PL_CROSS_F32, PL_CROSS_BF16, PL_CROSS_KINDS };

enum { PL_MOST_REGISTER_ROWS = 4 }; /* more always meet a tile */

typedef struct pl_crossovers {
    /* Up to so many activation rows meet decoded numbers in registers; more meet a tile that was
     * decoded once. [kind][axis][k - 2], 1 .. PL_MOST_REGISTER_ROWS. */
    uint8_t register_rows[PL_CROSS_KINDS][2][3];
    /* Multiply-adds that are worth one more thread. */
    uint32_t thread_operations;
} pl_crossovers;

/* The table that ships for these CPU flags (base/cpu.h). */
const pl_crossovers *pl_crossovers_of(unsigned cpu);

#endif
