#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Installs into an empty folder, moves it, and builds examples against the copy: through pkg-config
# and through CMake, shared and static.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
examples=$PLEACH_SOURCE/examples
cc=${PLEACH_CC:-cc}

cmake --install "$PLEACH_BUILD" --prefix "$work/first" >/dev/null
mv first installed
lib=$(dirname "$(find installed -name 'libpleach.so')")

echo "-- what is there"
diff <(cd "$PLEACH_SOURCE/include/pleach" && ls) <(ls installed/include/pleach)
for file in bin/pleach share/man/man1/pleach.1 share/bash-completion/completions/pleach \
    share/zsh/site-functions/_pleach share/fish/vendor_completions.d/pleach.fish; do
    [ -s "installed/$file" ] || { echo "missing or empty: $file"; exit 1; }
done
installed/bin/pleach version

echo "-- exported symbols are public ones"
foreign=$(nm -D --defined-only "$lib/libpleach.so" |
    awk '$2 ~ /[TDBR]/ && $3 !~ /^pleach_/ {print $3}')
[ -z "$foreign" ] || { echo "$foreign"; exit 1; }

echo "-- pkg-config"
export PKG_CONFIG_PATH=$work/$lib/pkgconfig
[ "$(pkg-config --modversion pleach)" = "$(installed/bin/pleach version | awk 'NR == 1 {print $2}')" ]
$cc -std=c11 -Wall -Wextra -Werror "$examples/encode_matrix.c" -o shared \
    $(pkg-config --cflags --libs pleach) -lm
LD_LIBRARY_PATH=$lib ./shared 4
sed 's/-lpleach/-l:libpleach.a/' <(pkg-config --static --cflags --libs pleach) >static.flags
$cc -std=c11 "$examples/encode_matrix.c" -o static $(cat static.flags) -lm
./static 2

echo "-- CMake"
cmake -G Ninja -S "$PLEACH_SOURCE/tests/install/consumer" -B consumer -DCMAKE_C_COMPILER="$cc" \
    -DCMAKE_PREFIX_PATH="$work/installed" -DEXAMPLES="$examples" >/dev/null
ninja -C consumer >/dev/null
consumer/encode_matrix 3
consumer/encode_matrix_static 3
