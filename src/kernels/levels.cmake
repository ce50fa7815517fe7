# SPDX-License-Identifier: Apache-2.0
#
# The kernels' sources for the processor that is built for, with the flags of each level:
# PLEACH_LEVEL_SOURCES, and the levels' names in PLEACH_LEVELS.

file(GLOB PLEACH_LEVEL_SOURCES CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/c/*.c)
set(PLEACH_LEVELS c)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/x86/*.c)
    list(APPEND PLEACH_LEVELS avx2 avx512 avx512bf16)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
    file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/arm/*.c)
    list(APPEND PLEACH_LEVELS neon dotprod)
endif()
list(APPEND PLEACH_LEVEL_SOURCES ${sources})

set(flags_avx2 -mavx2 -mfma -mf16c -mbmi2)
set(flags_avx512 ${flags_avx2} -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512cd
    -mavx512vbmi -mavx512vbmi2 -mavx512vnni -mprefer-vector-width=512)
set(flags_avx512bf16 ${flags_avx512} -mavx512bf16)
set(flags_dotprod -march=armv8.2-a+dotprod)
foreach(file IN LISTS PLEACH_LEVEL_SOURCES)
    string(REGEX REPLACE ".*_([a-z0-9]+)\\.c$" "\\1" level ${file})
    set_source_files_properties(${file} PROPERTIES COMPILE_OPTIONS "-O3;${flags_${level}}")
endforeach()
