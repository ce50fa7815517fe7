/* SPDX-License-Identifier: Apache-2.0
 *
 * The two ways a vocabulary spells single bytes: GPT-2's alphabet, where every byte is a printable
 * character, and SentencePiece's byte pieces "<0x0A>". */
#ifndef PL_TEXT_BYTE_TOKENS_H
#define PL_TEXT_BYTE_TOKENS_H

#include <stdint.h>

#include "utf8.h"

/* The character for a byte: itself if printable in Latin-1, else the next free one from U+0100 on
 * (openai/gpt-2, src/encoder.py, bytes_to_unicode). */
static inline uint32_t pl_byte_letter(unsigned byte)
{
    if (byte <= 0x20) return 0x100 + byte;
    if (byte >= 0x7f && byte <= 0xa0) return 0x121 + byte - 0x7f;
    return byte == 0xad ? 0x143 : byte;
}

/* The byte a character stands for, or -1. */
static inline int pl_letter_byte(uint32_t c)
{
    if (c >= 0x100 && c <= 0x120) return (int)(c - 0x100);
    if (c >= 0x121 && c <= 0x142) return (int)(c - 0x121 + 0x7f);
    if (c == 0x143) return 0xad;
    return (c > 0x20 && c < 0x7f) || (c > 0xa0 && c < 0x100 && c != 0xad) ? (int)c : -1;
}

/* The byte of a piece "<0xHH>" in capitals, or -1. */
static inline int pl_byte_piece(const char *s, size_t size)
{
    static const char digits[] = "0123456789ABCDEF";
    if (size != 6 || memcmp(s, "<0x", 3) || s[5] != '>' || !s[3] || !s[4]) return -1;
    const char *high = strchr(digits, s[3]), *low = strchr(digits, s[4]);
    return high && low ? (int)((high - digits) << 4 | (low - digits)) : -1;
}

/* Writes the six characters of a byte piece. */
static inline void pl_byte_piece_write(unsigned byte, char dst[6])
{
    static const char digits[] = "0123456789ABCDEF";
    memcpy(dst, "<0x", 3);
    dst[3] = digits[byte >> 4];
    dst[4] = digits[byte & 15];
    dst[5] = '>';
}

#endif
