#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Makes sure that what a task needs is there, and installs what is missing: Debian packages with
# apt-get (through sudo when not root) and, for tests, Python packages in .cache/venv. Silent and
# quick when nothing is missing.
#
#   tools/setup.sh GROUP...
#
#   build   compiler, CMake, Ninja, libraries        python   a bare Python environment (pip)
#   test    what building the tests needs            pytest   and the packages that tests use
#   clang   the second compiler                      fuzz     its libFuzzer
#   format  clang-format                             arm      cross compiler and emulator
set -euo pipefail
cd "$(dirname "$0")/.."

missing=()
need() { # need PACKAGE COMMAND...: the package is missing unless the command succeeds
    local package=$1
    shift
    "$@" >/dev/null 2>&1 || missing+=("$package")
}
has_library() { command -v pkg-config && pkg-config --exists "$1"; }
compiles() { # compiles COMPILER FLAG...: an empty program builds and links
    local compiler=$1
    shift
    command -v "$compiler" && echo 'int main(void) { return 0; }' |
        "$compiler" "$@" -x c - -o /dev/null
}
has_browser() { command -v chromium || command -v chromium-browser; }
has_venv() { python3 -c 'import ensurepip, venv'; }

for group in "$@"; do
    case $group in
    build)
        need gcc command -v cc
        need libc6-dev compiles cc
        need cmake command -v cmake
        need ninja-build command -v ninja
        need pkg-config command -v pkg-config
        need libjansson-dev has_library jansson
        need libpcre2-dev has_library libpcre2-8
        need libutf8proc-dev has_library libutf8proc
        need libopenblas-serial-dev has_library openblas # any other variant does as well
        need liblapacke-dev has_library lapacke
        need libedit-dev has_library libedit
        need libmicrohttpd-dev has_library libmicrohttpd
        ;;
    test)
        need gcc command -v gcc
        need g++ command -v g++
        [ "$(uname -m)" != x86_64 ] || need qemu-user command -v qemu-x86_64
        need libcmocka-dev has_library cmocka
        need chromium has_browser # the server's page
        ;;
    clang)
        need clang compiles clang
        ;;
    fuzz) need libclang-rt-14-dev compiles clang -fsanitize=address ;;
    arm)
        need gcc-aarch64-linux-gnu command -v aarch64-linux-gnu-gcc
        need libc6-dev-arm64-cross compiles aarch64-linux-gnu-gcc -static
        need qemu-user command -v qemu-aarch64
        ;;
    format) need clang-format command -v clang-format ;;
    python | pytest) need python3-venv has_venv ;;
    *)
        echo "setup: unknown group $group" >&2
        exit 2
        ;;
    esac
done

if [ ${#missing[@]} -gt 0 ]; then
    echo "setup: installing ${missing[*]}"
    as_root=()
    if [ "$(id -u)" -ne 0 ]; then
        if ! command -v sudo >/dev/null; then
            echo "setup: not root and no sudo here; as root: apt-get install ${missing[*]}" >&2
            exit 1
        fi
        as_root=(sudo)
    fi
    if ! command -v apt-get >/dev/null; then
        echo "setup: no apt-get here; install what these Debian packages hold: ${missing[*]}" >&2
        exit 1
    fi
    export DEBIAN_FRONTEND=noninteractive
    install=("${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}")
    # Package lists may be absent or old: only then are they fetched.
    "${install[@]}" >/dev/null 2>&1 || { "${as_root[@]}" apt-get update -qq && "${install[@]}" >/dev/null; } || {
        echo "setup: apt-get could not install ${missing[*]}" >&2
        exit 1
    }
fi

for group in "$@"; do
    case $group in python | pytest)
        # Made anew when the folder was moved or half made: its scripts hold absolute paths.
        .cache/venv/bin/pip --version >/dev/null 2>&1 || python3 -m venv --clear .cache/venv
        ;;
    esac
    if [ "$group" = pytest ] && ! cmp -s tools/requirements.txt .cache/venv/installed.txt; then
        echo "setup: Python packages for tests into .cache/venv"
        .cache/venv/bin/pip install --quiet --disable-pip-version-check -r tools/requirements.txt
        cp tools/requirements.txt .cache/venv/installed.txt
    fi
done
