# Everything a newcomer needs: `make demo` (a real cluster, real data) and `make test` (all suites).
# Needs Python 3.11 or newer and make. PYTHON=... chooses the interpreter; PART=... picks a part of the demo;
# ARGS=... goes to pytest (suites) or to the benchmark.

PYTHON ?=
SEEDS  ?= 5000
# The seed of a campaign: SEED=7 SEEDS=1 runs one simulated cluster again.
SEED   ?= random
PYTEST  = $(if $(ARGS),-- $(ARGS))
CHOSEN  = $(if $(CELLS),--cells '$(CELLS)') $(if $(REPS),--reps '$(REPS)') $(if $(SECONDS),--seconds '$(SECONDS)') \
          $(if $(ID),--id '$(ID)') $(ARGS)
VENV   := .venv
BIN    := $(VENV)/bin
ENSURE := sh .ci/python.sh "$(PYTHON)" .ci/venv.py
PROTOS  = $(shell find bookkeeper journalmgr hedwig -name '*.proto' | sort)

.DEFAULT_GOAL := help
.PHONY: help demo test check unit sim fuzz crashpoints corruption integration interop bench bench-apache bench-apache-plan bench-apache-report bench-journals bench-journals-plan bench-journals-report bench-hubs bench-hubs-plan bench-hubs-report bench-repair bench-restart bench-spark proto proto-check conf clean venv-demo venv-dev

help:
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 26

# The virtual environment. Instant when nothing changed (.ci/venv.py compares a stamp inside it).
venv-demo:  ## only install: the virtual environment .venv, with the programs
	@$(ENSURE) --extras spark
venv-dev:
	@$(ENSURE) --extras dev,spark,plot

demo: venv-demo  ## clusters on this machine, real data; a bookie, name nodes and a hub are killed (PART= picks a part)
	$(BIN)/bookkeeper demo $(PART)

test: venv-dev  ## every suite: unit, simulation, integration, interop
	$(BIN)/python .ci/suites.py unit simulation interop spark integration $(PYTEST)

check: venv-dev proto-check  ## ruff, format, mypy --strict, unit tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict
	$(BIN)/python .ci/suites.py unit

unit: venv-dev  ## unit tests only (ARGS= for pytest, here and below)
	$(BIN)/python .ci/suites.py unit $(PYTEST)

sim: venv-dev  ## a longer simulation campaign from a fresh seed (SEED= SEEDS=)
	$(BIN)/python .ci/suites.py simulation -- --seed $(SEED) --sim-seeds $(SEEDS) --timeout 0 $(ARGS)

corruption: venv-dev  ## every byte of every file of a small bookie damaged, one at a time, and random bookies (ARGS=)
	$(BIN)/python -m tests.corruption.main $(ARGS)

fuzz: venv-dev  ## feed 10^6 changed inputs to every decoder of outside bytes; takes hours (ARGS='--inputs 20000', a decoder)
	$(BIN)/python -m tests.fuzz.main $(ARGS)

crashpoints: venv-dev  ## every crash point of a bookie, some 45 minutes (ARGS='--every 20', a story, or --state ID)
	$(BIN)/python -m tests.crashpoints $(ARGS)

integration: venv-dev  ## real ZooKeeper, sockets, disks, processes
	$(BIN)/python .ci/suites.py integration spark $(PYTEST)

interop: venv-dev  ## genuine Apache programs on the other side
	$(BIN)/python .ci/suites.py interop $(PYTEST)

bench: venv-demo  ## measure a cluster of its own; prints figures, settings and calibration
	$(BIN)/bookkeeper perf bench $(ARGS)

bench-apache: venv-dev  ## against genuine Apache, in alternation (CELLS= REPS= SECONDS= ID= resumes; ARGS=)
	$(BIN)/python -m tests.benchmarks.apache.main run $(CHOSEN)

bench-apache-plan: venv-dev  ## what that would run, how long, how much disk it needs
	$(BIN)/python -m tests.benchmarks.apache.main plan $(CHOSEN)

bench-apache-report: venv-dev  ## the tables of such a run again (ID=, the newest when absent)
	$(BIN)/python -m tests.benchmarks.apache.main report $(if $(ID),'$(ID)')

bench-journals: venv-dev  ## our journals against Hadoop's, in alternation (CELLS= REPS= SECONDS= ID= resumes; ARGS=)
	$(BIN)/python -m tests.benchmarks.journals.main run $(CHOSEN)

bench-journals-plan: venv-dev  ## what that would run, how long, how much disk it needs
	$(BIN)/python -m tests.benchmarks.journals.main plan $(CHOSEN)

bench-journals-report: venv-dev  ## the tables of such a run again (ID=, the newest when absent)
	$(BIN)/python -m tests.benchmarks.journals.main report $(if $(ID),'$(ID)')

bench-hubs: venv-dev  ## our hub beside Apache's, Redis, NATS, Kafka, in alternation (CELLS= REPS= SECONDS= ID= resumes; ARGS=)
	$(BIN)/python -m tests.benchmarks.hubs.main run $(CHOSEN)

bench-hubs-plan: venv-dev  ## what that would run, how long, how much disk it needs
	$(BIN)/python -m tests.benchmarks.hubs.main plan $(CHOSEN)

bench-hubs-report: venv-dev  ## the tables of such a run again (ID=, the newest when absent)
	$(BIN)/python -m tests.benchmarks.hubs.main report $(if $(ID),'$(ID)')

bench-repair: venv-dev  ## a lost bookie repaired by us and by genuine Apache, in alternation (ARGS=, e.g. --ledgers 500 --reps 1)
	$(BIN)/python -m tests.benchmarks.lifetime.repair $(ARGS)

bench-restart: venv-dev  ## a killed bookie started again, ours and genuine Apache's on copies of the same files (ARGS=)
	$(BIN)/python -m tests.benchmarks.lifetime.restart $(ARGS)

bench-spark: venv-dev  ## the Spark sources beside their ceilings, in local[2] (ARGS=, e.g. --reps 2 --cells ledgers,perf)
	$(BIN)/python -m tests.benchmarks.spark.main $(ARGS)

proto: venv-dev  ## regenerate the *_pb2.py modules
	$(BIN)/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. $(PROTOS)

proto-check: venv-dev  ## fail if a committed *_pb2.py is not what its .proto says
	@fresh=$$(mktemp -d) && trap 'rm -rf "$$fresh"' EXIT && set -e && \
	for proto in $(PROTOS); do \
	  $(BIN)/python -m grpc_tools.protoc -I. --python_out="$$fresh" --pyi_out="$$fresh" "$$proto"; \
	  for made in "$${proto%.proto}_pb2.py" "$${proto%.proto}_pb2.pyi"; do \
	    cmp "$$fresh/$$made" "$$made" || { echo "$$made is not current: run 'make proto'" >&2; exit 1; }; \
	  done; \
	done

conf: venv-dev  ## regenerate conf/*.conf from the settings tables
	$(BIN)/python -m bookkeeper.config.render > conf/bk_server.conf
	$(BIN)/python -m journalmgr.config > conf/journalmgr.conf
	$(BIN)/python -m hedwig.config.render > conf/hw_server.conf

clean:  ## remove the virtual environment, caches and build results
	rm -rf $(VENV) .venv.lock build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
	find bookkeeper journalmgr hedwig tests .ci -name __pycache__ -type d -prune -exec rm -rf {} +
