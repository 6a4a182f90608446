# The two commands a fresh machine needs: `make demo` and `make test`. Each makes .venv, installs, and runs.
# Needs Python 3.11 or newer with pip, and make. `make check` adds lint, types and the import contracts.

PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3.13 || command -v python3)
BIN := .venv/bin

.PHONY: demo test check lint types imports wheel site torch venv clean

demo: .venv/.installed
	$(BIN)/python -m tilewright demo

# Two processes on two cores: NumPy and PyTorch start no threads beside them.
test: export OMP_NUM_THREADS ?= 1
test: .venv/.installed
	$(BIN)/python -m pytest -n 2 --dist worksteal $(ARGS)

check: lint types imports test

lint: .venv/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/.installed
	$(BIN)/pyright

imports: .venv/.installed
	$(BIN)/lint-imports --no-logo

# The operators that ship (OPS="--only add --dtype bf16": fewer of them), then both distributions, tried.
wheel: .venv/.installed
	$(BIN)/tilewright build ops $(OPS)
	rm -rf dist
	$(BIN)/hatchling build -d dist
	$(BIN)/python tools/try_wheel.py dist

# Every page's code is run by the tests; this draws, renders and checks links.
site: .venv/.installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# For tests/torch, which are skipped without PyTorch; those of models also without transformers. Set PIP_EXTRA_INDEX_URL for
# another build of this release.
TORCH = torch==2.13.0 transformers==5.24.0
torch: .venv/.installed
	@echo "installing PyTorch into .venv ..."
	@if test -x $(BIN)/pip; then $(BIN)/python -m pip install -q $(TORCH); \
	else $(PYTHON) -m pip --python $(BIN)/python install -q $(TORCH); fi

venv: .venv/.installed

# Some systems ship Python without the module that puts pip into an environment; their own pip installs from outside.
.venv/.installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv || $(PYTHON) -m venv --clear --without-pip .venv
	@echo "installing into .venv (a few minutes the first time) ..."
	@if test -x $(BIN)/pip; then $(BIN)/python -m pip install -q -e '.[dev]'; \
	else $(PYTHON) -m pip --python $(BIN)/python install -q -e '.[dev]'; fi
	@touch $@

clean:
	rm -rf .venv dist site src/tilewright/ops/shipped .pytest_cache .ruff_cache .import_linter_cache .hypothesis
