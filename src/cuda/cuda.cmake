# SPDX-License-Identifier: Apache-2.0
#
# What -DPLEACH_CUDA=ON adds: the sources of this folder, for Ampere, Hopper and consumer Blackwell in
# one binary, with code for later devices to compile themselves.

if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90a-real 120)
endif()
enable_language(CUDA)
set(CMAKE_CUDA_STANDARD 17)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
find_package(CUDAToolkit 13 REQUIRED)
file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*.c ${CMAKE_CURRENT_LIST_DIR}/*.cu)
list(APPEND PLEACH_SOURCES ${sources})
list(APPEND PLEACH_DEPENDENCIES CUDA::cudart_static CUDA::cublas)
set(PLEACH_CUDA_LIBS "-L${CUDAToolkit_LIBRARY_DIR} -lcublas -lcudart_static -lstdc++ -ldl -lrt")
add_compile_definitions(PLEACH_CUDA)
