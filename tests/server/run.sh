#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# run.sh TEST.py: runs a test of the server with the Python there is; 77 where there is none.
python=${PLEACH_PYTHON:-}
[ -x "$python" ] || python=$(command -v python3) || { echo "skipped: no Python"; exit 77; }
exec "$python" "$@"
