/* SPDX-License-Identifier: Apache-2.0
 *
 * The quantiser's coding on the device: quant/coding_device.h by the search of viterbi.h, scales of
 * encode.h and the products of cuBLAS in f32. */
#ifndef PL_CUDA_CODER_H
#define PL_CUDA_CODER_H

#include "quant/coding_device.h"

pleach_status pl_cuda_coder_open(const char *name, pl_coding_device **out, pleach_error *err);

#endif
