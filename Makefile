# Millstream. `make help` lists what there is.
SHELL := /bin/bash
.DEFAULT_GOAL := help
JOBS ?= $(shell nproc)
ENV := $(if $(MILLSTREAM_ENV),$(MILLSTREAM_ENV),.venv)
CTEST := ctest --test-dir build --output-on-failure -j$(JOBS)
RANKS ?= $(shell nproc)

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

taxi: build ## set up, build, generate 2 M trips, train TaxiDemandNN on all cores, show the bundle
	@[ -d data/taxi ] || build/bin/millstream generate hvfhv --rows 2000000 --files 4 --out data/taxi
	build/bin/millstream train examples/taxi/taxi.toml --set define.trips=data/taxi --ranks $(RANKS) \
	  --out runs/taxi --overwrite

test: build ## set up, build, run all tests
	$(CTEST)

setup: ## install what the build needs (scripts/setup.sh)
	@scripts/setup.sh

configure: setup
	@[ -f build/build.ninja ] || cmake --preset release $(if $(MILLSTREAM_ENV),-DMILLSTREAM_ENV=$(MILLSTREAM_ENV))

build: configure ## the release program, build/bin/millstream, and the tests
	@ninja -C build

unit: build ## unit tests
	$(CTEST) -L unit

mpi: build ## tests on 1 to 4 ranks
	$(CTEST) -L mpi

golden: build ## queries against their expected results, under every configuration
	$(CTEST) -L golden

bless: build ## rewrite the golden expectations; review the diff
	build/test/golden_runner --bless test/golden

format: ## format the sources
	git ls-files '*.h' '*.cc' | xargs clang-format-14 -i

tidy: configure ## clang-tidy's allowlist over the sources
	git ls-files 'src/*.cc' | grep -v '^src/train/' | xargs -P $(JOBS) -n 4 clang-tidy --quiet -p build

asan: setup ## unit, golden and rank tests under the address and undefined-behaviour sanitizers
	cmake --preset asan && ninja -C build-asan && ctest --test-dir build-asan --output-on-failure -j$(JOBS) -L 'unit|golden|mpi'

tsan: setup ## queues, loader and comm under the thread sanitizer
	cmake --preset tsan && ninja -C build-tsan && ctest --test-dir build-tsan --output-on-failure -j$(JOBS) -R 'base|comm|loader'

bench: build ## the figures of docs/performance.md (about 15 minutes)
	bench/run.sh

lint: configure ## include directions and formatting
	$(ENV)/bin/python scripts/check_layers.py
	git ls-files '*.h' '*.cc' | xargs clang-format-14 --dry-run --Werror

headers: configure ## does every header compile alone? (minutes: some see torch)
	$(ENV)/bin/python scripts/check_headers.py build

check: build lint ## what CI runs: lint and all tests
	$(CTEST)

.PHONY: help taxi test setup configure build unit mpi golden bless format tidy asan tsan bench lint headers check
