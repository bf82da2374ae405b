# Every target makes the virtual environment that it needs.
PYTHON ?= python3
VENV ?= .venv
OLDEST_VENV ?= .venv-oldest
BATCHES_VENV ?= .venv-batches
SAIL_VENV ?= .venv-sail
PEERS_VENV ?= .venv-peers
HOURS ?= 1000
FLEET ?= build/fleet
DIST ?= build/dist
SITE ?= build/docs
# Some machines forbid caches of bytecode. Here each of hundreds of processes would compile all it imports.
unexport PYTHONDONTWRITEBYTECODE
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest
# For what computes: it leaves more of the machine to the workers and servers, whose timeouts are real. Not all of
# it: beside a load, at 10, it would hardly get on.
BEHIND := nice -n 5

# Each group has servers, ports and files of its own.
GROUPS := test-core test-servers test-workers test-pipeline
# What those leave out, the longest first. Together they cover tests/, whatever is added to it.
SIDE_BY_SIDE := test-spark test-more test-pythons test-simulation test-peers test-oldest test-sail test-conformance test-batches
MORE_GROUPS := test-soak $(SIDE_BY_SIDE)
SERVERS := tests/integration tests/operating
CONFORMANCE := tests/conformance/servers
SIMULATION := tests/simulation
SOAK := tests/soak/test_soak.py
WORKERS := tests/acceptance
PIPELINE := tests/pipeline
SAIL := tests/sail
USUAL := -m 'not thorough and not batches'
REST := -m 'thorough and not batches'
# So many tests at a time, each process with a server and a proxy of its own.
SPREAD := --dist worksteal --numprocesses
# Keeps what the group cost, for `costs` and for CI.
RUN = $(BIN)/python -m tests.running run $@
REPORT = --junitxml build/costs/$@.xml

.PHONY: help demo fleet test $(GROUPS) test-all $(MORE_GROUPS) test-quick test-deep lint docs dist soak simulate benchmark clean

help:  ## Show this
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

# Nothing is compiled when it is installed, which takes a minute: most of it is never imported.
VENV_PYTHONS := $(patsubst %,%/bin/python,$(VENV) $(OLDEST_VENV) $(BATCHES_VENV) $(SAIL_VENV) $(PEERS_VENV))
$(VENV_PYTHONS): %/bin/python:
	$(PYTHON) -m venv $*
	$@ -m pip install --quiet --upgrade 'pip>=25.1'

$(VENV)/demo.stamp: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --no-compile --editable '.[demo,pipeline]'
	touch $@

$(VENV)/test.stamp: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --no-compile --editable . --group test
	touch $@ $(VENV)/demo.stamp

$(OLDEST_VENV)/test.stamp: pyproject.toml | $(OLDEST_VENV)/bin/python
	$(OLDEST_VENV)/bin/python -m pip install --quiet --no-compile --editable . --group test-oldest
	touch $@

$(BATCHES_VENV)/test.stamp: pyproject.toml | $(BATCHES_VENV)/bin/python
	$(BATCHES_VENV)/bin/python -m pip install --quiet --no-compile --editable . --group test-batches
	touch $@

$(SAIL_VENV)/test.stamp: pyproject.toml | $(SAIL_VENV)/bin/python
	$(SAIL_VENV)/bin/python -m pip install --quiet --no-compile --editable . --group test-sail
	touch $@

$(PEERS_VENV)/test.stamp: pyproject.toml | $(PEERS_VENV)/bin/python
	$(PEERS_VENV)/bin/python -m pip install --quiet --no-compile --editable . --group test-peers
	touch $@

demo: $(VENV)/demo.stamp  ## Run the same work under a stock worker and under ours, and report (two minutes)
	@$(BIN)/python -m demo

fleet: $(VENV)/demo.stamp  ## Simulate a fleet's journals in FLEET, with the truth about their duplicates beside them
	$(BIN)/python -m fleet $(FLEET)

lint: $(VENV)/test.stamp  ## Check style, types and who imports whom
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test-quick: $(VENV)/test.stamp  ## Run the rules alone, without server or worker (half a minute)
	$(PYTEST) $(SPREAD) 2 $(USUAL) tests/unit tests/conformance

test: $(VENV)/test.stamp  ## Check and test what the README promises (five minutes)
	@echo 'Style and types, then side by side: the core and its models, servers, real workers, the pipeline on Spark.'
	@echo 'About five minutes on two cores. Each group shows its output when it has ended.'
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory --jobs $(words $(GROUPS)) --output-sync=target $(GROUPS)
	@$(BIN)/python -m tests.running costs $(GROUPS)
	@echo 'All passed. Next: make test-all, for what this leaves out (fifteen minutes), or make demo.'

test-all: $(VENV)/test.stamp  ## Run what `make test` leaves out (fifteen minutes)
	@echo 'A soak, alone: its leases last a few seconds. Then side by side: more of real workers, the oldest Celery, every'
	@echo 'Python here, other servers, Sail, Spark on a cluster, and the suites of Celery and kombu. About fifteen minutes.'
	@$(MAKE) --no-print-directory test-soak
	@$(MAKE) --no-print-directory --jobs 4 --output-sync=target $(SIDE_BY_SIDE)
	@$(BIN)/python -m tests.running costs $(MORE_GROUPS)
	@echo 'All passed. Next: make soak and make simulate, for as long as you like, with random seeds; make test-deep.'

test-core: $(VENV)/test.stamp
	$(BEHIND) $(RUN) $(PYTEST) $(REPORT) $(USUAL) tests $(patsubst %,--ignore=%,$(SERVERS) $(WORKERS) $(PIPELINE) $(SAIL))

test-servers: $(VENV)/test.stamp
	$(RUN) $(PYTEST) $(REPORT) $(SPREAD) 2 $(USUAL) $(SERVERS)

test-workers: $(VENV)/test.stamp
	$(RUN) $(PYTEST) $(REPORT) $(SPREAD) 3 $(USUAL) $(WORKERS)

test-pipeline: $(VENV)/test.stamp
	$(RUN) $(PYTEST) $(REPORT) $(USUAL) $(PIPELINE)

test-more: $(VENV)/test.stamp
	$(RUN) $(PYTEST) $(REPORT) $(SPREAD) 3 $(REST) $(WORKERS) $(SERVERS)

test-simulation: $(VENV)/test.stamp
	$(BEHIND) $(RUN) $(PYTEST) $(REPORT) $(SPREAD) 2 $(REST) $(SIMULATION)

# One process: it asks all servers side by side (tests/conformance/servers/lanes.py).
test-conformance: $(VENV)/test.stamp
	$(RUN) $(PYTEST) $(REPORT) $(CONFORMANCE)

# The seed is fixed here. Random ones are for `make soak`: no build is to depend on one.
test-soak: $(VENV)/test.stamp
	SOAK_SEED=$${SOAK_SEED:-1} $(RUN) $(PYTEST) $(REPORT) $(SOAK)

test-oldest: $(OLDEST_VENV)/test.stamp
	$(RUN) $(OLDEST_VENV)/bin/python -m pytest $(REPORT) $(SPREAD) 2 -m oldest tests/integration $(WORKERS)

test-batches: $(BATCHES_VENV)/test.stamp
	$(RUN) $(BATCHES_VENV)/bin/python -m pytest $(REPORT) $(SPREAD) 2 -m 'batches or between' $(WORKERS)

test-sail: $(SAIL_VENV)/test.stamp $(VENV)/test.stamp
	SPARK_PYTHON=$(BIN)/python $(BEHIND) $(RUN) $(SAIL_VENV)/bin/python -m pytest $(REPORT) $(SAIL)

test-spark: $(VENV)/test.stamp
	$(BEHIND) $(RUN) $(PYTEST) $(REPORT) $(REST) $(PIPELINE)

# Core and integration on every Python that we claim, and that this machine has.
test-pythons: $(VENV)/test.stamp
	$(RUN) $(BIN)/python -m tests.pythons

test-peers: $(PEERS_VENV)/test.stamp  ## Run Celery's and kombu's own tests with stock and with ours
	$(RUN) $(PEERS_VENV)/bin/python -m tests.peers

# The variable silences an advertisement of the theme's.
docs: $(VENV)/test.stamp  ## Build the documents as a site, in SITE (build/docs)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --site-dir $(SITE)
	@echo 'The site is in $(SITE): open $(SITE)/index.html'

dist: $(VENV)/test.stamp  ## Build the wheel and the sdist in DIST, and check them
	$(BIN)/python -m build --no-isolation --outdir $(DIST) .
	$(BIN)/twine check --strict $(DIST)/*

soak: $(VENV)/test.stamp  ## Harm real workers for SOAK_SECONDS (60) and account for every message
	$(PYTEST) $(SOAK)

simulate: $(VENV)/test.stamp  ## Simulate HOURS worker-hours of everything that can go wrong
	$(BIN)/python -m tests.simulation --hours $(HOURS)

test-deep: $(VENV)/test.stamp  ## Try several times as many examples of the models and of fuzzing
	THOROUGH=1 $(PYTEST) $(SPREAD) 2 tests/model tests/fuzz

benchmark: $(VENV)/test.stamp  ## Compare throughput with a stock worker, side by side
	$(BIN)/python -m benchmarks.throughput

clean:  ## Remove what the other targets made
	rm -rf $(VENV) $(OLDEST_VENV) $(BATCHES_VENV) $(SAIL_VENV) $(PEERS_VENV) .venv-3.* build/costs build/dist build/peers .venv-localstack .mypy_cache .pytest_cache .ruff_cache .hypothesis
