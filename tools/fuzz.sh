#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs every fuzz target of a build folder for some seconds, starting from the committed corpus.
# What it finds goes to .cache/fuzz/; a crash ends the run and names its input.
#
#   tools/fuzz.sh BUILD SECONDS
set -euo pipefail
cd "$(dirname "$0")/.."

for target in "$1"/fuzz_*; do
    [ -x "$target" ] || continue
    name=$(basename "$target")
    found=.cache/fuzz/$name
    mkdir -p "$found"
    echo "== $name"
    "$target" -max_total_time="$2" -rss_limit_mb=2048 -timeout=20 -print_final_stats=1 \
        -dict=fuzz/model.dict \
        -artifact_prefix="$found-" "$found" "fuzz/corpus/${name#fuzz_}"
done
