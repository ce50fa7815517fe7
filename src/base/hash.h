/* SPDX-License-Identifier: Apache-2.0
 *
 * A fast hash of bytes: a check against change, not against malice. */
#ifndef PL_BASE_HASH_H
#define PL_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* Of data[0..size). The seed may be another part's hash, to hash several parts as one. */
uint64_t pl_hash(const void *data, size_t size, uint64_t seed);

#endif
