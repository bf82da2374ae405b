# Every target makes the virtual environment that it needs.
PYTHON ?= python3
VENV ?= .venv
PEERS_VENV ?= .venv-peers
HOURS ?= 1000
FLEET ?= build/fleet
DIST ?= build/dist
SITE ?= build/docs
# Some machines forbid bytecode caches. Then each of hundreds of processes would compile all its imports.
unexport PYTHONDONTWRITEBYTECODE
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest
# For groups that only compute: workers and servers have real timeouts and need the machine more. At 10, such a
# group would make hardly any progress beside a load.
BEHIND := nice -n 5

# Each group has its own servers, ports and files.
GROUPS := test-core test-servers test-workers test-pipeline
# What GROUPS leaves out, the longest first. Together they cover all of tests/, including anything added later.
SIDE_BY_SIDE := test-spark test-more test-versions test-simulation test-peers test-conformance
MORE_GROUPS := test-soak $(SIDE_BY_SIDE)
SERVERS := tests/integration tests/operating
CONFORMANCE := tests/conformance/servers
SIMULATION := tests/simulation
SOAK := tests/soak/test_soak.py
WORKERS := tests/acceptance
PIPELINE := tests/pipeline
USUAL := -m 'not thorough and not batches'
REST := -m 'thorough and not batches'
# Append the number of processes. Each has its own server and proxy.
SPREAD := --dist worksteal --numprocesses
# Records the cost of the group, for `costs` and for CI.
RUN = $(BIN)/python -m tests.running run $@
REPORT = --junitxml build/costs/$@.xml

.PHONY: help demo fleet test $(GROUPS) test-all $(MORE_GROUPS) test-quick test-deep lint docs dist soak simulate bench clean

help:  ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

# --no-compile saves a minute: most of what is installed is never imported.
VENV_PYTHONS := $(patsubst %,%/bin/python,$(VENV) $(PEERS_VENV))
$(VENV_PYTHONS): %/bin/python:
	$(PYTHON) -m venv $*
	$@ -m pip install --quiet --upgrade 'pip>=25.1'

$(VENV)/demo.stamp: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --no-compile --editable '.[demo,pipeline]'
	touch $@

$(VENV)/docs.stamp: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --no-compile --editable . --group docs
	touch $@

$(VENV)/test.stamp: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --no-compile --editable . --group test
	touch $@ $(VENV)/demo.stamp $(VENV)/docs.stamp

$(PEERS_VENV)/test.stamp: pyproject.toml | $(PEERS_VENV)/bin/python
	$(PEERS_VENV)/bin/python -m pip install --quiet --no-compile --editable . --group test-peers
	touch $@

demo: $(VENV)/demo.stamp  ## Compare a stock worker with one that keeps leases, and write a report (two minutes)
	@$(BIN)/python -m demo

fleet: $(VENV)/demo.stamp  ## Write the journals of a simulated fleet to FLEET, with a list of its true duplicates
	$(BIN)/python -m fleet $(FLEET)

lint: $(VENV)/test.stamp  ## Check style, types, imports, avoided words and sizes
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell
	$(BIN)/python -m tests.size

test-quick: $(VENV)/test.stamp  ## Test the rules, without servers or workers (a minute)
	$(PYTEST) $(SPREAD) 2 $(USUAL) tests/unit tests/model

test: $(VENV)/test.stamp  ## Lint, and test what the README promises (five minutes)
	@echo 'Style and types, then side by side: the core and its models, servers, real workers, the pipeline on Spark.'
	@echo 'This takes about five minutes on two cores. Each group prints its output when it ends.'
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory --jobs $(words $(GROUPS)) --output-sync=target $(GROUPS)
	@$(BIN)/python -m tests.running costs $(GROUPS)
	@echo 'All passed. Next: run make test-all for the other tests (twenty minutes), or make demo.'

test-all: $(VENV)/test.stamp  ## Run the tests that `make test` leaves out (twenty minutes)
	@echo 'First a soak, alone, because its leases last a few seconds. Then side by side: more tests of real workers, the'
	@echo 'other versions of Python and Celery, other servers, Spark, and the test suites of Celery and kombu.'
	@echo 'This takes about twenty minutes.'
	@$(MAKE) --no-print-directory test-soak
	@$(MAKE) --no-print-directory --jobs 4 --output-sync=target $(SIDE_BY_SIDE)
	@$(BIN)/python -m tests.running costs $(MORE_GROUPS)
	@echo 'All passed. To search further with random seeds, run make soak, make simulate or make test-deep.'

test-core: $(VENV)/test.stamp
	$(BEHIND) $(RUN) $(PYTEST) $(REPORT) $(USUAL) tests $(patsubst %,--ignore=%,$(SERVERS) $(WORKERS) $(PIPELINE))

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

# One process, which calls all servers side by side (tests/conformance/servers/conftest.py).
test-conformance: $(VENV)/test.stamp
	$(RUN) $(PYTEST) $(REPORT) $(CONFORMANCE)

# The seed is fixed, because no build should depend on a random one. `make soak` uses random seeds.
test-soak: $(VENV)/test.stamp
	SOAK_SEED=$${SOAK_SEED:-1} $(RUN) $(PYTEST) $(REPORT) $(SOAK)

test-spark: $(VENV)/test.stamp
	$(BEHIND) $(RUN) $(PYTEST) $(REPORT) $(REST) $(PIPELINE)

# The promises on other versions of Python, Celery and kombu.
test-versions: $(VENV)/test.stamp
	$(RUN) $(BIN)/python -m tests.versions

test-peers: $(PEERS_VENV)/test.stamp  ## Run the test suites of Celery and kombu, with their transport and with ours
	$(RUN) $(PEERS_VENV)/bin/python -m tests.peers

# The variable suppresses an advertisement of the theme.
docs: $(VENV)/docs.stamp  ## Build the site of the docs in SITE (build/docs)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --site-dir $(SITE)
	@echo 'The site is in $(SITE): open $(SITE)/index.html'

dist: $(VENV)/test.stamp  ## Build and check the wheel and the sdist in DIST
	$(BIN)/python -m build --no-isolation --outdir $(DIST) .
	$(BIN)/twine check --strict $(DIST)/*

soak: $(VENV)/test.stamp  ## Disturb real workers for SOAK_SECONDS (60) and account for every message
	$(PYTEST) $(SOAK)

simulate: $(VENV)/test.stamp  ## Simulate HOURS worker-hours (1000) with random faults
	$(BIN)/python -m tests.simulation --hours $(HOURS)

test-deep: $(VENV)/test.stamp  ## Run models and fuzzing with several times as many examples
	THOROUGH=1 $(PYTEST) $(SPREAD) 2 tests/model tests/fuzz

bench: $(VENV)/test.stamp  ## Measure PART (default: all, ten minutes) beside the alternatives, and write docs/performance.md
	$(BIN)/python -m benchmarks $(PART)

clean:  ## Remove the virtual environments, the caches and most of build/
	rm -rf $(VENV) .venv-* build/costs build/dist build/peers .mypy_cache .pytest_cache .ruff_cache .hypothesis
