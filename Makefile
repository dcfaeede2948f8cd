# make train [ENV=...] [ARGS="..."]   set up if needed, then train
# make test                           set up if needed, then lint, types and all tests
# make test-faults                    the fault suite in full: hundreds of kills, ten thousands of damaged files
# make test-gpu                       the tests that need a CUDA GPU, with what is installed
# Not ?=: some shells and container images have an ENV of their own in the environment.
ENV = Pendulum-v1
ARGS =
# Pendulum-v1 registers no threshold of its own; -200 is the return at which it is commonly called solved.
TARGET = $(if $(filter Pendulum-v1,$(ENV)),--target-return -200)
PYTHON ?= python3
BIN := .venv/bin

.PHONY: train test lint types pytest test-faults test-gpu setup clean

train: .venv/installed
	@$(BIN)/spreeze train $(ENV) $(TARGET) $(ARGS)

test: lint types pytest

lint: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/installed-dev
	$(BIN)/mypy

# Two files of tests at a time, because a training leaves a core idle for much of its start and end; in their order,
# which ends with small ones. What measures the machine comes after, alone: PYTEST_ARGS may leave none of that (5).
pytest: .venv/installed-dev
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not alone" $(PYTEST_ARGS)
	$(BIN)/python -m pytest -m alone $(PYTEST_ARGS) || [ $$? = 5 ]

test-faults: .venv/installed-dev
	$(BIN)/python -m pytest --full-faults tests/faults $(PYTEST_ARGS)

# Sets nothing up: a machine with a GPU often has a PyTorch of its own that fits its driver.
test-gpu:
	$(if $(wildcard $(BIN)/python),$(BIN)/python,PYTHONPATH=src $(PYTHON)) -m pytest -m gpu $(PYTEST_ARGS)

setup: .venv/installed-dev

.venv/bin/python:
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 11) <= v < (3, 14) else f"Spreeze needs Python 3.11 to 3.13, found {v[0]}.{v[1]}: make PYTHON=python3.12")'
	$(PYTHON) -m venv .venv || { rm -rf .venv; exit 1; }

# The stamps make a second `make train` start at once; they go stale when what is to be installed changes.
.venv/installed: .venv/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dashboard,video]"
	@touch $@

.venv/installed-dev: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $@

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis
