# make train [ENV=...] [ARGS="..."]   set up if needed, then train
# make train-cluster [...]            the same with its samplers on a second node of a Ray cluster on this machine
# make test                           set up if needed, then lint, types and all tests
# make audit                          are there known vulnerabilities in the packages of constraints.txt? make lint asks
#                                     once per day, and goes on where the advisories (osv.dev) cannot be reached
# make test-faults                    all tests in full: hundreds of kills, a hundred thousand damaged files, variants that
#                                     are much like those of make test, and programs instead of forks that are past imports
# make bench-tables                   put the figures of README and docs right, from benchmarks/results
# make bench-check                    are they? Part of make test
# make test-gpu                       the tests that need a CUDA GPU, with what is installed
# make bench                          Spreeze and its peers on the CPU, under an hour (benchmarks/README.md)
# make bench-discrete                 the same on tasks with discrete actions, in parts of at most half an hour each
# make bench-gpu                      the same on a GPU, in parts of under 8 minutes, with what is installed
# Not ?=: some shells and container images have an ENV of their own in the environment.
ENV = Pendulum-v1
ARGS =
# Pendulum-v1 registers no threshold of its own; -200 is the return at which it is commonly called solved.
TARGET = $(if $(filter Pendulum-v1,$(ENV)),--target-return -200)
PYTHON ?= python3
BIN := .venv/bin

.PHONY: train train-cluster test lint audit types bench-check bench-tables pytest test-faults test-gpu bench bench-pendulum bench-hopper \
	bench-throughput bench-discrete bench-cartpole bench-lunarlander bench-acrobot bench-dqn-throughput bench-gpu bench-gpu-curves \
	setup clean

train: .venv/installed
	@$(BIN)/spreeze train $(ENV) $(TARGET) $(ARGS)

train-cluster: .venv/installed-ray
	@$(BIN)/python examples/cluster_on_one_machine.py $(ENV) $(TARGET) --samplers 0 $(ARGS)

test: lint types bench-check pytest

lint: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@$(BIN)/python .ci/audit.py --daily .venv/audited

audit: .venv/installed-dev
	@$(BIN)/python .ci/audit.py

types: .venv/installed-dev
	$(BIN)/mypy

bench-check: .venv/installed-dev
	@$(BIN)/python benchmarks/tables.py check

bench-tables: .venv/installed-dev
	@$(BIN)/python benchmarks/tables.py write

# Two files of tests at a time, because a training leaves a core idle for much of its start and end; in their order,
# which ends with small ones. What measures the machine comes after, alone: PYTEST_ARGS may leave none of that (5).
# A test that fails beside others is run again alone, and counts as failed if it fails again: on a busy machine a
# process may need longer than a test waits. What needed that is listed under "again, alone".
PYTEST = $(BIN)/python -m pytest $(PYTEST_ARGS)
pytest: .venv/installed-dev
	$(PYTEST) -n 2 --dist loadfile --no-loadscope-reorder -m "not alone" --maxfail 20 || \
		{ [ $$? = 1 ] && echo "again, alone:" && $(PYTEST) -rA --last-failed --last-failed-no-failures none -m "not alone"; }
	$(PYTEST) -m alone || [ $$? = 5 ]

test-faults: .venv/installed-dev
	$(BIN)/python -m pytest --full-faults $(PYTEST_ARGS)

# Sets nothing up: a machine with a GPU often has a PyTorch of its own that fits its driver.
test-gpu:
	$(if $(wildcard $(BIN)/python),$(BIN)/python,PYTHONPATH=src $(PYTHON)) -m pytest -m gpu $(PYTEST_ARGS)

# Each part has a time after which it starts no more runs, together under an hour; the same target does what is left.
BENCH_OUT = benchmarks/results
COMPARE = $(BIN)/python benchmarks/side_by_side.py
CPU_PEERS = sb3 sbx rllib torchrl tianshou
PENDULUM_SECONDS = 60
HOPPER_SECONDS = 110

bench: bench-pendulum bench-hopper bench-throughput

bench-pendulum: .venv/installed-dev
	$(COMPARE) solve --env Pendulum-v1 --target-return -200 --max-seconds $(PENDULUM_SECONDS) --part-seconds 1000 \
		--systems spreeze spreeze-256 $(CPU_PEERS) --json $(BENCH_OUT)/peers-pendulum-2-cores.json \
		--picture docs/images/peers-pendulum-2-cores.png

bench-hopper: .venv/installed-dev
	$(COMPARE) solve --env Hopper-v5 --target-return 1000 --max-seconds $(HOPPER_SECONDS) --part-seconds 2130 \
		--systems spreeze $(CPU_PEERS) --json $(BENCH_OUT)/peers-hopper-2-cores.json \
		--picture docs/images/peers-hopper-2-cores.png

bench-throughput: .venv/installed-dev
	$(COMPARE) throughput --env HalfCheetah-v5 --window 8 --batch-size 256 --max-seconds 40 --part-seconds 460 \
		--systems spreeze $(CPU_PEERS) --json $(BENCH_OUT)/peers-throughput-256-2-cores.json

# Discrete actions: `solve` takes all peers for them.
CARTPOLE_SECONDS = 90
LUNARLANDER_SECONDS = 300
ACROBOT_SECONDS = 90

bench-discrete: bench-cartpole bench-acrobot bench-lunarlander bench-dqn-throughput

bench-cartpole: .venv/installed-dev
	$(COMPARE) solve --env CartPole-v1 --target-return 475 --max-seconds $(CARTPOLE_SECONDS) --part-seconds 1800 \
		--json $(BENCH_OUT)/peers-cartpole-2-cores.json --picture docs/images/peers-cartpole-2-cores.png

bench-lunarlander: .venv/installed-dev
	$(COMPARE) solve --env LunarLander-v3 --target-return 200 --max-seconds $(LUNARLANDER_SECONDS) --part-seconds 1800 \
		--json $(BENCH_OUT)/peers-lunarlander-2-cores.json --picture docs/images/peers-lunarlander-2-cores.png

bench-acrobot: .venv/installed-dev
	$(COMPARE) solve --env Acrobot-v1 --target-return -100 --max-seconds $(ACROBOT_SECONDS) --part-seconds 1800 \
		--json $(BENCH_OUT)/peers-acrobot-2-cores.json --picture docs/images/peers-acrobot-2-cores.png

bench-dqn-throughput: .venv/installed-dev
	$(COMPARE) throughput --env CartPole-v1 --window 8 --batch-size 256 --max-seconds 60 --part-seconds 1200 \
		--systems spreeze sb3-dqn sbx-dqn tianshou-dqn cleanrl-dqn --json $(BENCH_OUT)/peers-dqn-throughput-2-cores.json

# Sets nothing up, as test-gpu; PEERS_PYTHON has Stable-Baselines3 and SBX. Every call ends within 8 minutes: repeat a
# target until it has no runs to do.
GPU_OUT = $(BENCH_OUT)/h200
GPU_SEEDS = 3
CURVE_SECONDS = 300
# So that one seed of all three fits ten minutes; SBX, whose return after CURVE_SECONDS is the mark, has all of them.
CURVE_SHORTER = --shorter spreeze=60 --shorter sb3=180
PEERS_PYTHON = $(PYTHON)
GPU_COMPARE = $(if $(wildcard $(BIN)/python),$(BIN)/python,PYTHONPATH=src $(PYTHON)) benchmarks/side_by_side.py
GPU_SYSTEMS = --systems spreeze sb3 sbx --envs 16 --updates-per-vector-step 16 --peers-python $(PEERS_PYTHON) --part-seconds 470

bench-gpu: bench-gpu-throughput-8192 bench-gpu-throughput-256 bench-gpu-curves

bench-gpu-throughput-%:
	$(GPU_COMPARE) throughput --env HalfCheetah-v5 --window 10 --batch-size $* --repeats 3 $(GPU_SYSTEMS) \
		--json $(GPU_OUT)/peers-throughput-$*.json

bench-gpu-curves:
	$(GPU_COMPARE) solve --env HalfCheetah-v5 --max-seconds $(CURVE_SECONDS) $(CURVE_SHORTER) --eval-interval-s 10 --seeds $(GPU_SEEDS) \
		$(GPU_SYSTEMS) --json $(GPU_OUT)/peers-halfcheetah.json --picture docs/images/peers-halfcheetah-h200.png

setup: .venv/installed-dev

.venv/bin/python:
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 11) <= v < (3, 14) else f"Spreeze needs Python 3.11 to 3.13, found {v[0]}.{v[1]}: make PYTHON=python3.12")'
	$(PYTHON) -m venv .venv || { rm -rf .venv; exit 1; }

# The stamps make a second `make train` start at once; they go stale when what is to be installed changes.
.venv/installed: .venv/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dashboard,video]"
	@touch $@

.venv/installed-ray: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[ray]"
	@touch $@

.venv/installed-dev: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $@

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis
