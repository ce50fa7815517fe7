# SPDX-License-Identifier: Apache-2.0
#
# A short front of CMake and Ninja: the build itself is CMakeLists.txt.

BUILD = build
JOBS = $(shell nproc)
PREFIX = /usr/local
MODEL = .cache/SmolLM2-135M-Instruct.Q4_1.gguf

# Tests that compare with Python packages or the real model find them here, and skip without.
export PLEACH_PYTHON = $(CURDIR)/.cache/venv/bin/python
export PLEACH_SMOLLM2 = $(CURDIR)/$(MODEL)

CONFIGURE = cmake -G Ninja -S . -DCMAKE_INSTALL_PREFIX=$(PREFIX)
CTEST = ctest --output-on-failure -j $(JOBS)

# The first of what is there; nothing: no CUDA here.
NVCC = $(firstword $(shell command -v nvcc) $(wildcard /usr/local/cuda/bin/nvcc))

.PHONY: all help demo check check-arm check-cuda check-full asan tsan bench fuzz install format clean \
        setup-build setup-test

all: setup-build ## build the library and the program into build/
	$(CONFIGURE) -B $(BUILD)
	ninja -C $(BUILD) -j $(JOBS)

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## fetch a real model, pack it to 4 and 3 bits, measure, answer a prompt
	tools/demo.sh

check: setup-test ## build with gcc and with clang without a warning, run all tests of both; Arm, CUDA
	$(CONFIGURE) -B build-gcc -DCMAKE_C_COMPILER=gcc -DPLEACH_WERROR=ON
	ninja -C build-gcc -j $(JOBS)
	$(CONFIGURE) -B build-clang -DCMAKE_C_COMPILER=clang -DPLEACH_WERROR=ON
	ninja -C build-clang -j $(JOBS)
	cd build-gcc && $(CTEST)
	cd build-clang && $(CTEST)
	$(MAKE) check-arm check-cuda

check-arm: ## build for 64-bit Arm without a warning, run kernels and pure functions under qemu
	@tools/setup.sh build arm
	cmake -G Ninja -S tests/cross -B build-arm --toolchain aarch64.cmake
	ninja -C build-arm -j $(JOBS)
	cd build-arm && $(CTEST)

check-cuda: ## where nvcc is, build for NVIDIA GPUs without a warning, run what needs none
ifeq ($(NVCC),)
	@echo "check-cuda: skipped: no nvcc in PATH or /usr/local/cuda/bin"
else
	$(CONFIGURE) -B build-cuda -DPLEACH_CUDA=ON -DPLEACH_WERROR=ON \
	    -DCMAKE_CUDA_COMPILER=$(NVCC) -DCMAKE_CUDA_ARCHITECTURES=90a-real
	ninja -C build-cuda -j $(JOBS) pleach_program check-kernels test_cache test_cuda test_cuda_pages
	cd build-cuda && $(CTEST) -R '^(test_cache|test_cuda|test_cuda_pages)$$'
endif

check-full: export PLEACH_KILLS = 300
check-full: export PLEACH_REQUESTS = 10000
check-full: check asan tsan fuzz ## check, asan, tsan and fuzz, many more killed runs and requests

asan: setup-test ## the same tests under AddressSanitizer and UndefinedBehaviorSanitizer
	$(CONFIGURE) -B build-asan -DCMAKE_C_COMPILER=gcc -DPLEACH_SANITIZE=ON -DPLEACH_WERROR=ON
	ninja -C build-asan -j $(JOBS)
	cd build-asan && $(CTEST)

tsan: setup-test ## the pool, linear layers, the cache and generation under ThreadSanitizer
	$(CONFIGURE) -B build-tsan -DCMAKE_C_COMPILER=gcc -DPLEACH_TSAN=ON -DPLEACH_WERROR=ON
	ninja -C build-tsan -j $(JOBS) test_pool test_linear test_cache test_generate test_batch
	cd build-tsan && $(CTEST) -R '^test_(pool|linear|cache|generate|batch)$$'

bench: all ## time the kernels, then prompt and generation of the real model
	tools/fetch_model.sh
	$(BUILD)/check-kernels --bench
	$(BUILD)/pleach bench $(MODEL)

fuzz: ## run every fuzz target for FUZZ_SECONDS (60)
	tools/setup.sh build test clang fuzz
	$(CONFIGURE) -B build-fuzz -DCMAKE_C_COMPILER=clang -DPLEACH_SANITIZE=ON -DPLEACH_FUZZ=ON
	ninja -C build-fuzz -j $(JOBS) fuzzers
	tools/fuzz.sh build-fuzz $(or $(FUZZ_SECONDS),60)

install: all ## headers, library, program, man page, completions into PREFIX (/usr/local)
	cmake --install $(BUILD)

format: ## clang-format the lines that differ from the last commit
	tools/setup.sh format
	git clang-format --extensions c,h

clean: ## remove what was built; .cache/ and demo/ stay
	rm -rf build build-cuda build-gcc build-clang build-arm build-asan build-tsan build-fuzz

setup-build:
	@tools/setup.sh build

setup-test:
	@tools/setup.sh build test clang pytest
	@tools/fetch_model.sh
