/* SPDX-License-Identifier: Apache-2.0
 *
 * Compiler extensions, all in one place. */
#ifndef PL_BASE_COMPILER_H
#define PL_BASE_COMPILER_H

#if defined(__GNUC__)
#define PL_ALWAYS_INLINE inline __attribute__((always_inline))
#define PL_NOINLINE __attribute__((noinline))
#define PL_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define PL_LIKELY(x) __builtin_expect(!!(x), 1)
#define PL_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define PL_RESTRICT __restrict
#define PL_ALIGNED(n) __attribute__((aligned(n)))
#define PL_PREFETCH(p) __builtin_prefetch(p)
#else
#define PL_ALWAYS_INLINE inline
#define PL_NOINLINE
#define PL_PRINTF(fmt, args)
#define PL_LIKELY(x) (x)
#define PL_UNLIKELY(x) (x)
#define PL_RESTRICT
#define PL_ALIGNED(n)
#define PL_PREFETCH(p) ((void)0)
#endif

/* Tells the core that it waits in a loop. */
#if defined(__x86_64__)
#define PL_PAUSE() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define PL_PAUSE() __asm__ volatile("yield")
#else
#define PL_PAUSE() ((void)0)
#endif

/* Before a loop of few, constant turns whose body needs its counter as a constant. */
#if defined(__clang__)
#define PL_UNROLL _Pragma("clang loop unroll(full)")
#elif defined(__GNUC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define PL_UNROLL _Pragma("GCC unroll 16") /* sanitizers' checks keep some loops from it */
#else
#define PL_UNROLL
#endif

#define PL_MIN(a, b) ((a) < (b) ? (a) : (b))
#define PL_MAX(a, b) ((a) > (b) ? (a) : (b))
#define PL_COUNT(array) (sizeof(array) / sizeof((array)[0]))

#endif
