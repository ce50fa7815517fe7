/* SPDX-License-Identifier: Apache-2.0
 *
 * What the processor can do, as named levels. */
#ifndef PL_BASE_CPU_H
#define PL_BASE_CPU_H

/* A flag is set only when the CPU has every feature of the bundle and the operating system saves
 * its registers. Each level includes the ones before it on its architecture. */
enum {
    PL_CPU_C = 0,
    PL_CPU_AVX2 = 1 << 0,    /* AVX2, FMA, F16C, BMI2 */
    PL_CPU_AVX512 = 1 << 1,  /* F, BW, VL, DQ, CD, VBMI, VBMI2, VNNI: Ice Lake and Zen 4 on */
    PL_CPU_AVX512BF16 = 1 << 2, /* and BF16 */
    PL_CPU_NEON = 1 << 8,       /* what every 64-bit Arm processor has */
    PL_CPU_DOTPROD = 1 << 9     /* FEAT_DotProd: sdot, udot */
};

/* The flags of this machine. */
unsigned pl_cpu_detect(void);

/* Flags for a level's name: "c", "avx2", "avx512", "avx512bf16", "neon", "dotprod", or NULL or
 * "auto" for all that the machine has and gains by. Returns 0 and sets *flags (already limited to
 * what the machine has), or -1 when the name is unknown or the machine lacks that level. */
int pl_cpu_level(const char *name, unsigned *flags);

/* The highest level's name. Static storage. */
const char *pl_cpu_name(unsigned flags);

#endif
