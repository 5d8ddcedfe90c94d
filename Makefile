# make build | demo | test | selection | lint | format | clean       PYTHON=/path/python: that interpreter's torch
SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c
PYTHON ?=
JOBS ?= $(shell nproc)
ifeq ($(PYTHON),)
  TORCH_PYTHON := $(CURDIR)/.venv/bin/python
else
  TORCH_PYTHON := $(shell command -v $(PYTHON))
endif
CORPUS := build/corpus/perldoc.txt
# ThreadSanitizer of GCC 12 stops at start where addresses are randomised widely.
FIXED_ADDRESSES := $(shell setarch -R true 2> /dev/null && echo setarch -R)
SOURCES = $(shell git ls-files -co --exclude-standard '*.cpp' '*.h')

.PHONY: build release setup demo test selection lint format clean
build: TARGET = lrmoe lrmoe_ops
build: release

release: setup
	@cmake --preset release --log-level=WARNING -DLRMOE_PYTHON="$(TORCH_PYTHON)" > /dev/null
	@cmake --build --preset release --parallel $(JOBS) --target $(TARGET)

setup:
	@PYTHON="$(PYTHON)" scripts/setup.sh

$(CORPUS): scripts/corpus.pl | setup
	@mkdir -p $(@D)
	@perl $< $@

demo: build $(CORPUS)
	@scripts/demo.sh "$(TORCH_PYTHON)"

# What a selection costs in training, in full: most of an hour (docs/evidence.md).
selection: build $(CORPUS)
	@bench/selection.sh

# Tests run side by side; only their ends are shown.
CTEST = ctest --parallel $(JOBS) --preset
ENDS = grep --line-buffered -v '^ *Start '

# The release build with every test, then the torch-free tests under two sanitizers and
# the readers against made-up files.
test: TARGET = all
test: release
	@PYTHON="$(PYTHON)" scripts/setup.sh --test
	@$(CTEST) release | $(ENDS)
	@for preset in asan tsan; do \
	  echo "== core tests, $$preset"; \
	  cmake --preset $$preset --log-level=WARNING > /dev/null && \
	  cmake --build --preset $$preset --parallel $(JOBS) && \
	  $(FIXED_ADDRESSES) $(CTEST) $$preset | $(ENDS) || exit 1; \
	done
	@if command -v clang++ > /dev/null; then \
	  echo "== fuzz targets"; \
	  cmake --preset fuzz --log-level=WARNING > /dev/null && \
	  cmake --build --preset fuzz --parallel $(JOBS) && $(CTEST) fuzz | $(ENDS); \
	else echo "== fuzz targets: left out, there is no clang++"; fi

# clang-tidy reads how each file is compiled; GCC's precompiled header is not for it.
lint: setup
	@PYTHON="$(PYTHON)" scripts/setup.sh --lint
	@clang-format --dry-run --Werror $(SOURCES)
	@cmake --preset lint --log-level=WARNING -DLRMOE_PYTHON="$(TORCH_PYTHON)" > /dev/null
	@run-clang-tidy-16 -quiet -p build/lint -j $(JOBS) -extra-arg=-Wno-unknown-warning-option \
	  "^$(CURDIR)/(lrmoe|cli|tests|bench)/"

format:
	@clang-format -i $(SOURCES)

clean:
	@rm -rf build
