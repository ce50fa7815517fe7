# SPDX-License-Identifier: Apache-2.0
#
# Debian's cross compiler for 64-bit Arm, and the emulator that runs what it builds.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(QEMU qemu-aarch64)
