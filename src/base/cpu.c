/* SPDX-License-Identifier: Apache-2.0
 *
 * CPU detection. On x86 __builtin_cpu_supports checks CPUID and, for vector state, XGETBV; on Arm
 * the kernel says what programs may use. */
#include "cpu.h"

#include <stddef.h>
#include <string.h>
#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#ifndef HWCAP_ASIMDDP
#define HWCAP_ASIMDDP (1 << 20)
#endif
#endif
#if defined(__x86_64__)
#include <cpuid.h>

/* Not a name that every clang's __builtin_cpu_supports knows. The AVX2 test covers its registers. */
static int has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

unsigned pl_cpu_detect(void)
{
    unsigned flags = PL_CPU_C;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
        __builtin_cpu_supports("bmi2") && has_f16c())
        flags |= PL_CPU_AVX2;
    if ((flags & PL_CPU_AVX2) && __builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512cd") &&
        __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2") &&
        __builtin_cpu_supports("avx512vnni"))
        flags |= PL_CPU_AVX512;
    if ((flags & PL_CPU_AVX512) && __builtin_cpu_supports("avx512bf16"))
        flags |= PL_CPU_AVX512BF16;
#elif defined(__aarch64__)
    flags |= PL_CPU_NEON; /* part of the base architecture */
#if defined(__linux__)
    if (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) flags |= PL_CPU_DOTPROD;
#elif defined(__APPLE__)
    flags |= PL_CPU_DOTPROD; /* every Apple processor that runs macOS has it */
#endif
#endif
    return flags;
}

/* What the machine has but is slower with: vdpbf16ps does half of what two FMA do on Intel's
 * processors, twice as much on AMD's. */
static unsigned slow_flags(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    return __builtin_cpu_is("amd") ? 0 : PL_CPU_AVX512BF16;
#else
    return 0;
#endif
}

int pl_cpu_level(const char *name, unsigned *flags)
{
    static const struct {
        const char *name;
        unsigned needs, keeps;
    } levels[] = {
        {"c", 0, 0},
        {"avx2", PL_CPU_AVX2, PL_CPU_AVX2},
        {"avx512", PL_CPU_AVX512, PL_CPU_AVX2 | PL_CPU_AVX512},
        {"avx512bf16", PL_CPU_AVX512BF16, PL_CPU_AVX2 | PL_CPU_AVX512 | PL_CPU_AVX512BF16},
        {"neon", PL_CPU_NEON, PL_CPU_NEON},
        {"dotprod", PL_CPU_DOTPROD, PL_CPU_NEON | PL_CPU_DOTPROD},
    };
    unsigned have = pl_cpu_detect();
    if (!name || strcmp(name, "auto") == 0) {
        *flags = have & ~slow_flags();
        return 0;
    }
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++)
        if (strcmp(name, levels[i].name) == 0 && (have & levels[i].needs) == levels[i].needs) {
            *flags = have & levels[i].keeps;
            return 0;
        }
    return -1;
}

const char *pl_cpu_name(unsigned flags)
{
    if (flags & PL_CPU_AVX512BF16) return "avx512bf16";
    if (flags & PL_CPU_AVX512) return "avx512";
    if (flags & PL_CPU_AVX2) return "avx2";
    if (flags & PL_CPU_DOTPROD) return "dotprod";
    if (flags & PL_CPU_NEON) return "neon";
    return "c";
}
