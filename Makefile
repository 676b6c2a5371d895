# What people type is what CI runs. `make help` lists the targets.
# Needs Python 3.10 or later, make, git and a C++20 compiler; everything else goes into .venv in this checkout.

PYTHON ?= python3
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
PYTEST_ARGS ?=
SERVERLESS ?=
COMPRESS ?=
DEMO_ARGS ?=
BENCH_ARGS ?=
LAB_ARGS ?=
LAB_FIGURES ?= theory step overlap compression scaling

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:

VENV := .venv
# The environment's own tools first: python, cmake, ninja and ours. Nothing outside it may mix in.
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV

PIP := $(VENV)/bin/python -m pip --disable-pip-version-check
NATIVE := $(shell find native -name '*.cc' -o -name '*.h' -o -name '*.inc')
# Stamps say what is done. They lie in .venv, so that they go when it goes.
STAMP_VENV := $(VENV)/.stamp-venv
# One for each file in requirements/ that .venv has: what a target uses is installed when the target is asked for.
tools = $(1:%=$(VENV)/.stamp-%)
STAMP_PACKAGE := $(VENV)/.stamp-package
# Frameworks that cannot share an environment with PyTorch have one each, with the core that was built in .venv.
FRAMEWORKS := tensorflow mxnet jax

ifneq ($(shell test -t 2 && echo terminal),)
  BOLD := \033[1m
  GREEN := \033[1;32m
  RED := \033[1;31m
  PLAIN := \033[0m
endif
say = @printf '$(BOLD)==> %s$(PLAIN)\n' $(1)

.PHONY: help setup demo test lint format docs bench clean distclean
.PHONY: test-quick wheels sdist bench-lab bench-local fuzz meddler test-asan test-tsan test-python test-torch
.PHONY: $(FRAMEWORKS:%=test-%)

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 17 | sed 's/^/  make /'

# ---- setup ----

setup: $(STAMP_PACKAGE) ## create .venv, install PyTorch, build the core (the other targets do it by themselves)

$(STAMP_VENV):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	  echo "error: $(PYTHON) is not Python 3.10 or later; name one: make PYTHON=python3.12" >&2; exit 1; }
	@echo 'int main() { return 0; }' | $${CXX:-c++} -std=c++20 -x c++ -fsyntax-only - || { \
	  echo "error: $${CXX:-c++} is not a C++20 compiler; install g++ 11 or clang 14 or later, or set CXX" >&2; exit 1; }
	$(call say,"creating .venv with $$($(PYTHON) -V)")
	@$(PYTHON) -m venv $(VENV) || { \
	  echo "error: $(PYTHON) -m venv failed; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@touch $@

$(VENV)/.stamp-%: requirements/%.txt $(STAMP_VENV)
	$(call say,"installing what requirements/$*.txt names into .venv")
	@$(PIP) install -r $< | sed -unE 's/^ *(Downloading .*|Installing [a-z ]*).*/    \1/p'
	@touch $@

$(call tools,demo): requirements/build.txt
$(call tools,test): requirements/bench.txt requirements/cluster.txt requirements/docs.txt

# Python files are used in place; only a change of the core or of the build needs this again.
$(STAMP_PACKAGE): $(call tools,demo) pyproject.toml CMakeLists.txt $(filter-out native/tests/%,$(NATIVE))
	$(call say,"building the native core (a minute or two) and installing byteps into .venv")
	@$(PIP) uninstall --quiet --yes byteps 2>/dev/null || true  # as the distribution was called once
	@CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) $(PIP) install --quiet --no-build-isolation --no-deps \
	  --config-settings=build-dir='build/{wheel_tag}' -e .
	@touch $@

# MXNet's last release needs a NumPy that does not know newer versions of Python.
NO_MXNET := $(shell $(PYTHON) -c 'import sys; print("no" if sys.version_info >= (3, 12) else "")')

TESTED := $(if $(NO_MXNET),$(filter-out mxnet,$(FRAMEWORKS)),$(FRAMEWORKS))

.venv-%/.stamp-tools: requirements/%.txt $(STAMP_VENV)
	$(call say,"installing $* into .venv-$*; the first time takes minutes")
	@$(VENV)/bin/python -m venv --clear .venv-$*
	@.venv-$*/bin/python -m pip --disable-pip-version-check install -r $< \
	  | sed -unE 's/^ *(Downloading .*|Installing [a-z ]*).*/    \1/p'
	@touch $@

# The same files as in .venv: Python sources in place, and the one compiled core. Nothing is compiled again.
.venv-%/.stamp-package: .venv-%/.stamp-tools $(STAMP_PACKAGE)
	@from=$$($(VENV)/bin/python -c 'import sysconfig; print(sysconfig.get_path("platlib"))'); \
	to=$$(.venv-$*/bin/python -c 'import sysconfig; print(sysconfig.get_path("platlib"))'); \
	rm -rf $$to/byteps $$to/*byteps*; cp -R $$from/byteps $$from/*byteps*.pth $$from/*byteps*.py $$from/byteps_train-*.dist-info $$to
	@.venv-$*/bin/python -c 'import byteps._core'
	@touch $@

.PRECIOUS: $(VENV)/.stamp-% .venv-%/.stamp-tools .venv-%/.stamp-package

# ---- what people come for ----

# SERVERLESS=1: two ranks that sum in shared memory. COMPRESS=onebit (topk, randomk, dithering, fp16): send less.
demo: $(STAMP_PACKAGE) ## train a small network with two workers and one server; SERVERLESS=1, COMPRESS=onebit
	$(call say,"two workers $(if $(SERVERLESS),without a server,and one server) train on the digits of scikit-learn")
	@bpslaunch $(if $(SERVERLESS),-n 2,--workers 2 --servers 1) python examples/torch/train_digits.py \
	  $(if $(COMPRESS),--compress $(COMPRESS)) $(DEMO_ARGS)

test: $(STAMP_PACKAGE) ## lint and every test: native with sanitizers, then pytest with each framework
	@for phase in lint test-asan test-tsan test-python $(FRAMEWORKS:%=test-%); do \
	  $(MAKE) --no-print-directory $$phase || { \
	    printf '$(RED)==> make test: FAILED in %s after %s s; repeat with: make %s$(PLAIN)\n' \
	      $$phase $$SECONDS $$phase; exit 1; }; \
	done; printf '$(GREEN)==> make test: everything passed in %s s: lint, native tests, pytest, frameworks$(PLAIN)\n' $$SECONDS

# A job of each kind: ranks alone, with servers, on hosts, with PyTorch, with a failure.
QUICK := tests/unit tests/integration/test_front_door.py tests/integration/test_one_paragraph.py \
  tests/integration/test_processes.py tests/integration/test_demo.py
test-quick: $(STAMP_PACKAGE) $(call tools,lint test) ## every day: ruff, unit tests, and a job of each kind
	@ruff check --quiet --output-format concise . && ruff format --quiet --check .
	$(call say,"pytest: unit tests and a job of each kind")
	@python -m pytest -q $(QUICK) $(PYTEST_ARGS)

bench: $(STAMP_PACKAGE) $(call tools,bench) ## measure push-pull beside Gloo and plain sockets, then on links; under 45 minutes
	$(call say,"measuring push-pull; results go to bench-results/")
	@bps bench push-pull --all --output bench-results $(BENCH_ARGS)
	@$(MAKE) --no-print-directory bench-lab

# What docs/performance.md tells of. Labs need root; without it this says so and is no failure of `make bench`.
bench-lab: $(STAMP_PACKAGE) $(call tools,bench) ## theory, Gloo, training, compression, scaling on links of a known speed; needs root
	$(call say,"measuring on links of a known speed; results go to bench-results/")
	@reason=$$(python -c 'from byteps.tools.lab.network import why_not; print(why_not())'); \
	if [ -n "$$reason" ]; then echo "skipped: $$reason"; exit 0; fi; \
	for figure in $(LAB_FIGURES); do \
	  python benchmarks/lab/$$figure.py --output bench-results $(LAB_ARGS); \
	done

bench-local: $(STAMP_PACKAGE) $(call tools,bench) ## measure ranks of one machine beside Gloo and plain shared memory
	$(call say,"measuring sums on one machine; results go to bench-results/")
	@bps bench local --output bench-results $(BENCH_ARGS)

lint: $(call tools,demo lint) ## ruff, mypy --strict, clang-format; changes nothing
	$(call say,"lint: ruff")
	@ruff check --quiet --output-format concise .
	@ruff format --quiet --check .
	$(call say,"lint: mypy")
	@mypy
	$(call say,"lint: clang-format")
	@clang-format --dry-run -Werror $(NATIVE)

format: $(call tools,lint) ## put every file into the project's format
	@ruff check --quiet --fix-only .
	@ruff format .
	@clang-format -i $(NATIVE)

docs: $(STAMP_PACKAGE) $(call tools,docs) ## build the site into build/site; docs/configuration.md from the variables
	@bps env --markdown > docs/configuration.md
	@NO_MKDOCS_2_WARNING=1 python docs/site.py build/site
	$(call say,"the site is in build/site/index.html")

# ---- release ----

# One wheel for Python 3.12 and later, one each for 3.10 and 3.11; each is tested in an environment of its own with every
# Python that is found here. PYTHONS names others.
PYTHONS ?= python3.10 python3.11 python3.12 python3.13 python3.14
wheels: $(call tools,wheels) ## build manylinux wheels into dist/, and test each in a clean environment
	$(call say,"building wheels with $(PYTHONS); results go to dist/")
	@python release/wheels.py --pythons $(PYTHONS)

sdist: $(call tools,wheels) ## build the source distribution into dist/, and a wheel from it
	$(call say,"building the source distribution; results go to dist/")
	@python -m build --quiet --sdist --outdir dist .
	@python release/wheels.py --sdist dist/*.tar.gz --pythons $(PYTHONS)

# ---- parts of `make test` ----

# ThreadSanitizer of some compilers cannot live with much address randomisation; without leave to turn it off, try as is.
FIXED_ADDRESSES := $(shell setarch $$(uname -m) -R true 2>/dev/null && echo setarch $$(uname -m) -R)

# One build folder per sanitizer; what the compiler says is kept in a log and shown only when it fails.
# -O1 with assertions: the largest file takes 2.5 times as long to compile at -O3 under AddressSanitizer.
test-asan test-tsan: NAME = native-$(@:test-%=%)
test-asan: SANITIZE := address,undefined
test-tsan: SANITIZE := thread
test-asan: ## native tests with AddressSanitizer and UBSan
test-tsan: ## native tests with ThreadSanitizer
test-asan test-tsan: $(call tools,build)
	$(call say,"native tests with $(SANITIZE) (build log: build/$(NAME).log)")
	@mkdir -p build
	@cmake -S . -B build/$(NAME) -G Ninja -DBYTEPS_NATIVE_TESTS=ON -DBYTEPS_PYTHON=OFF -DBYTEPS_SANITIZE=$(SANITIZE) \
	  -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O1 \
	  > build/$(NAME).log 2>&1 || { cat build/$(NAME).log; exit 1; }
	@cmake --build build/$(NAME) --parallel $(JOBS) >> build/$(NAME).log 2>&1 \
	  || { tail -n 60 build/$(NAME).log; exit 1; }
	@$(FIXED_ADDRESSES) ctest --test-dir build/$(NAME) --output-on-failure --timeout 300 --no-tests=error \
	  --parallel $(JOBS)

# Two at a time is an hour on each of two cores: make fuzz FUZZ_SECONDS=3600 FUZZ="fuzz_aggregator fuzz_client".
# What is found stays in build/fuzz/found/NAME, a crash in build/fuzz/crash-*; a seed that shows something new
# belongs into native/tests/fuzz/corpus/NAME, where the short run of `make test` begins.
FUZZ_SECONDS ?= 60
FUZZ ?= $(patsubst native/tests/fuzz/%.cc,%,$(wildcard native/tests/fuzz/fuzz_*.cc))
fuzz: $(call tools,build) ## every fuzz target for FUZZ_SECONDS, under AddressSanitizer and UBSan; needs clang
	$(call say,"fuzzing $(FUZZ) for $(FUZZ_SECONDS) s (build log: build/fuzz.log)")
	@mkdir -p build
	@cmake -S . -B build/fuzz -G Ninja -DCMAKE_CXX_COMPILER=clang++ -DBYTEPS_FUZZ=ON -DBYTEPS_NATIVE_TESTS=ON \
	  -DBYTEPS_PYTHON=OFF -DBYTEPS_SANITIZE=address,undefined -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O1 \
	  > build/fuzz.log 2>&1 || { cat build/fuzz.log; exit 1; }
	@cmake --build build/fuzz --parallel $(JOBS) --target $(FUZZ) >> build/fuzz.log 2>&1 \
	  || { tail -n 60 build/fuzz.log; exit 1; }
	@cd build/fuzz && printf '%s\n' $(FUZZ) | xargs -P $(JOBS) -I{} sh -c 'mkdir -p found/{} && \
	  native/tests/{} -max_total_time=$(FUZZ_SECONDS) -max_len=4096 -timeout=60 -print_final_stats=1 found/{} \
	  $$(ls -d ../../native/tests/fuzz/corpus/{} 2>/dev/null) > {}.log 2>&1; \
	  code=$$?; echo "{}: status $$code, $$(grep -o "number_of_executed_units: .*" {}.log)"; exit $$code'

MEDDLER_JOBS ?= 10000
meddler: $(call tools,build) ## MEDDLER_JOBS short jobs over encrypted connections with somebody in the middle; takes long
	$(call say,"$(MEDDLER_JOBS) jobs with somebody in the middle (build log: build/native.log)")
	@mkdir -p build
	@cmake -S . -B build/native -G Ninja -DBYTEPS_NATIVE_TESTS=ON -DBYTEPS_PYTHON=OFF > build/native.log 2>&1 \
	  || { cat build/native.log; exit 1; }
	@cmake --build build/native --parallel $(JOBS) --target stress_meddler >> build/native.log 2>&1 \
	  || { tail -n 60 build/native.log; exit 1; }
	@build/native/native/tests/stress_meddler $(MEDDLER_JOBS)

test-python: $(STAMP_PACKAGE) $(call tools,test) ## pytest; PYTEST_ARGS="-k name" for a part
	$(call say,"pytest")
	@python -m pytest -q $(PYTEST_ARGS)

test-torch: $(STAMP_PACKAGE) $(call tools,test) ## the tests of the PyTorch plugin, a part of test-python
	$(call say,"pytest: torch")
	@python -m pytest -q tests/conformance tests/frameworks tests/integration/test_torch*.py $(PYTEST_ARGS)

test-tensorflow: ## the tests of TensorFlow and of Keras on it, in .venv-tensorflow
test-mxnet: ## the tests of MXNet, in .venv-mxnet
test-jax: ## the tests of JAX and of Keras on it, in .venv-jax
$(TESTED:%=test-%): test-%: .venv-%/.stamp-package
	$(call say,"pytest: $*")
	@.venv-$*/bin/python -m pytest -q tests/conformance tests/frameworks $(PYTEST_ARGS)

ifneq ($(NO_MXNET),)
test-mxnet:
	$(call say,"MXNet 1.9.1 needs Python 3.11 or earlier: nothing is tested; make PYTHON=python3.11 distclean test-mxnet")
endif

# ---- cleaning ----

clean: ## remove what was built; .venv with its downloads and bench-results/ stay
	@rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis $(STAMP_PACKAGE) .venv-*/.stamp-package
	@find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## remove .venv and those of the frameworks, bench-results/ and traces/ too
	@rm -rf $(VENV) $(FRAMEWORKS:%=.venv-%) bench-results traces
