# `make setup test` from a fresh checkout; needs python3.11 (or PYTHON=python3.12, python3.13), g++ and GNU make.
PYTHON ?= python3.11
VENV := .venv
PY := $(VENV)/bin/python
# Test files that run at the same time. Each starts processes of its own, and waits for a fifth of its time: one more
# than the processors of a small machine.
JOBS ?= 3
DEPS := $(VENV)/.deps-stamp
DEV := $(VENV)/.dev-stamp
STAMP := $(VENV)/.setup-stamp
JAX := build/jax-venv/.stamp
CPP_FILES = $(shell find csrc -name '*.h' -o -name '*.cc')

.PHONY: setup native plugins native-test native-asan native-tsan native-changed-sanitized thread-safety tidy lint format docs test test-long test-all fuzz-capture chaos operators demo bench-peers clean

setup: $(STAMP)

$(DEPS): requirements.txt
	@df -Pm . | awk 'NR == 2 && $$4 < 12000 { print "warning: torch and its CUDA libraries need 12 GB here while they are installed, " $$4 " MB are free" }'
	@test -x $(PY) || $(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2> /dev/null || \
	  { echo "error: Python 3.11, 3.12 or 3.13 is required, and '$(PYTHON)' is none; name one: make PYTHON=python3.12" >&2; exit 1; }
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --disable-pip-version-check -q -r requirements.txt
	touch $@

# What tests and lint need besides.
$(DEV): requirements-dev.txt $(DEPS)
	$(PY) -m pip install --disable-pip-version-check -q -r requirements-dev.txt
	touch $@

# The extension is built in place and the package installed editable, so that edits of Python files need nothing.
$(STAMP): $(DEPS) pyproject.toml setup.py
	$(PY) -m pip install --disable-pip-version-check -q --no-build-isolation --no-deps -e .
	touch $@

native: $(STAMP)
	$(PY) setup.py -q build_ext --inplace

# Plugins of GPUs and TPUs, to compile for them on a machine without one (ptpathways compile).
plugins: build/plugins/.stamp

build/plugins/.stamp: requirements-plugins.txt $(DEPS)
	$(PY) -m pip install --disable-pip-version-check -q --no-deps --upgrade --target build/plugins -r requirements-plugins.txt
	touch $@

native-test: $(DEPS)
	$(PY) tools/native_build.py test

native-asan: $(DEPS)
	$(PY) tools/native_build.py test --sanitize address

native-tsan: $(DEPS)
	$(PY) tools/native_build.py test --sanitize thread

# Both sanitizers for the rooms of csrc that differ from where this branch left SINCE; without git's history, nothing.
SINCE ?= origin/main
native-changed-sanitized: $(DEPS)
	$(PY) tools/native_build.py test --sanitize address --changed-since $(SINCE)
	$(PY) tools/native_build.py test --sanitize thread --changed-since $(SINCE)

# The analysis of annotated locks (docs/design/locks.md); its compiler is 180 MB, and nothing else needs it.
thread-safety: native
	$(PY) -m pip install --disable-pip-version-check -q ziglang==0.17.1
	$(PY) tools/thread_safety.py

tidy: native
	$(PY) -m pip install --disable-pip-version-check -q clang-tidy==19.1.0
	$(PY) tools/tidy.py

lint: $(DEV)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	@echo "clang-format: $(words $(CPP_FILES)) files"
	@$(VENV)/bin/clang-format --dry-run -Werror $(CPP_FILES)

format: $(DEV)
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .
	$(VENV)/bin/clang-format -i $(CPP_FILES)

# The site of docs/, in build/site; a link that leads nowhere is an error.
docs: build/docs-venv/.stamp
	NO_MKDOCS_2_WARNING=1 build/docs-venv/bin/mkdocs --quiet build --strict

build/docs-venv/.stamp: requirements-docs.txt
	test -x build/docs-venv/bin/python || $(PYTHON) -m venv build/docs-venv
	build/docs-venv/bin/python -m pip install --disable-pip-version-check -q -r requirements-docs.txt
	touch $@

# Without the long ones (tests/tiers.py).
test: $(DEV) native native-test
	$(PY) -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder -m "not long"

# The long ones, of which none begins later than BUDGET seconds after the first.
BUDGET ?= inf
test-long: $(DEV) native plugins $(JAX)
	PTPATHWAYS_JAX_PYTHON=$(abspath build/jax-venv/bin/python) \
	  $(PY) -m pytest -n $(JOBS) --dist loadfile -m long --budget $(BUDGET)

test-all: test
	$(MAKE) test-long

$(JAX): requirements-jax.txt
	test -x build/jax-venv/bin/python || $(PYTHON) -m venv build/jax-venv
	build/jax-venv/bin/python -m pip install --disable-pip-version-check -q -r requirements-jax.txt
	touch $@

# Loops out of a grammar, captured against eager: SEEDS of them from FIRST on.
FIRST ?= 0
SEEDS ?= 500
fuzz-capture: $(DEV) native
	$(PY) -m tests.fuzz.capture_steps $(FIRST) $(SEEDS)

# Faults against a real cluster that trains, for so many minutes (docs/reliability.md).
SEED ?= 1
MINUTES ?= 20
chaos: $(DEV) native
	$(PY) -m tests.chaos --seed $(SEED) --minutes $(MINUTES)

demo: native
	$(PY) examples/01_digits.py

# Every operator of PyTorch's database against the CPU, into docs/operators.md; goes on where an earlier run ended.
operators: $(DEV) native
	$(PY) -m tools.operators

# What `ptpathways bench --peers` compares with, each in an environment of its own under .peers/ (1.8 GB in all).
bench-peers: $(DEPS)
	$(PY) tools/bench_peers.py

clean:
	rm -rf build dist *.egg-info ptpathways/native/_*.so
