/* SPDX-License-Identifier: Apache-2.0
 *
 * One line on stderr for each request. What was said is in it only where that was asked for. */
#ifndef PL_SERVER_ACCESS_LOG_H
#define PL_SERVER_ACCESS_LOG_H

#include "exchange.h"

/* Nothing unless the server's settings ask for it. Counts the answer in any case. */
void pl_log_exchange(const pl_exchange *x);

#endif
