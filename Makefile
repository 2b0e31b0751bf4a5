# Two commands: `make demo` does the main job, `make test` checks everything.
# Each sets itself up; all that must be there is Python 3.11 or later and make.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
CHECKS := $(BIN)/ruff format --check . && $(BIN)/ruff check . && $(BIN)/mypy

# Where modules are not kept compiled, each of the many processes of the tests compiles them anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-all check setup bench papers lock clean

demo: $(READY)
	$(BIN)/distributary demo --out demo

# The checks run beside the tests; what they say comes at the end, and both must pass.
test-all: ALL := -m "" --hypothesis-profile=thorough
test test-all: $(READY)
	@said=$$(mktemp); \
	( $(CHECKS) ) >$$said 2>&1 & checks=$$!; \
	trap 'kill $$checks 2>/dev/null; rm -f $$said' EXIT; \
	$(BIN)/python -m pytest --durations=10 $(ALL); tests=$$?; \
	wait $$checks; checked=$$?; cat $$said; \
	exit $$(( tests ? tests : checked ))

check: $(READY)
	$(CHECKS)

setup: $(READY)

$(READY): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "distributary needs Python 3.11 or later; name one with: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(READY)

bench: $(READY)
	$(BIN)/python -m benchmarks

papers: $(READY)
	$(BIN)/distributary paper run all --out docs/papers

# Needs uv (pip install uv). Names no index, so that any mirror will do.
lock:
	uv pip compile pyproject.toml --extra dev --extra all --universal --python-version 3.11 \
	  --generate-hashes --no-emit-index-url --no-header -o requirements.lock

clean:
	rm -rf $(VENV) demo .mypy_cache .ruff_cache .pytest_cache .hypothesis
