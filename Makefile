# Every target makes the virtual environment that it needs.
PYTHON ?= python3
VENV ?= .venv
OLDEST_VENV ?= .venv-oldest
BATCHES_VENV ?= .venv-batches
SAIL_VENV ?= .venv-sail
PEERS_VENV ?= .venv-peers
HOURS ?= 1000
FLEET ?= build/fleet
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest
# For what computes: it leaves the machine to the workers and servers, whose timeouts are real.
BEHIND := nice -n 10

# Each has servers, ports and files of its own. Together they cover tests/, whatever is added to it.
GROUPS := test-core test-servers test-workers test-oldest test-batches test-pipeline test-sail test-pipeline-long
SOAK := tests/soak/test_soak.py
SERVERS := tests/integration tests/operating tests/conformance/servers $(SOAK)
WORKERS := tests/acceptance
PIPELINE := tests/pipeline
# What starts a Spark of its own, or reads a whole fleet: in one row with the rest it would end last.
PIPELINE_LONG := $(patsubst %,tests/pipeline/test_%.py,connect fleet java stream)
SAIL := tests/sail
# So many tests at a time, each process with a server and a proxy of its own.
SPREAD := --dist worksteal --numprocesses

.PHONY: help demo fleet test $(GROUPS) test-peers test-quick lint docs soak simulate benchmark clean

help:  ## Show this
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

# Nothing is compiled when it is installed, which takes a minute: most of it is never imported.
VENV_PYTHONS := $(patsubst %,%/bin/python,$(VENV) $(OLDEST_VENV) $(BATCHES_VENV) $(SAIL_VENV) $(PEERS_VENV))
$(VENV_PYTHONS): %/bin/python:
	$(PYTHON) -m venv $*
	$@ -m pip install --quiet --upgrade 'pip>=25.1'

$(VENV)/demo.stamp: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --no-compile --editable '.[demo,journal,pipeline]'
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

lint: $(VENV)/test.stamp  ## Check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test-quick: $(VENV)/test.stamp  ## Run the tests that need no worker process (two minutes)
	$(PYTEST) tests/unit tests/integration

test: lint  ## Run all checks and tests, side by side (ten minutes)
	@$(MAKE) --no-print-directory --jobs 6 --output-sync=target $(GROUPS)

test-core: $(VENV)/test.stamp  ## Run what needs neither server nor worker: rules, models, simulations
	$(BEHIND) $(PYTEST) tests $(patsubst %,--ignore=%,$(SERVERS) $(WORKERS) $(PIPELINE) $(SAIL))

# The soak has a fixed seed here. Random ones are for `make soak`: no build is to depend on one.
test-servers: $(VENV)/test.stamp  ## Run what needs SQS servers, show how these differ from AWS, and soak
	SOAK_SEED=$${SOAK_SEED:-1} $(PYTEST) $(SERVERS)

test-workers: $(VENV)/test.stamp  ## Run what needs real workers, three at a time: they mostly wait
	$(PYTEST) $(SPREAD) 3 -m 'not batches' $(WORKERS)

test-pipeline: $(VENV)/test.stamp  ## Run what needs Spark
	$(BEHIND) $(PYTEST) $(PIPELINE) $(patsubst %,--ignore=%,$(PIPELINE_LONG))

test-pipeline-long: $(VENV)/test.stamp  ## Run what needs Spark for long, once another group has ended
	$(BEHIND) $(PYTEST) $(PIPELINE_LONG)

test-sail: $(SAIL_VENV)/test.stamp $(VENV)/test.stamp  ## Run the pipeline on Sail, and compare with Spark
	SPARK_PYTHON=$(BIN)/python $(BEHIND) $(SAIL_VENV)/bin/python -m pytest $(SAIL)

test-oldest: $(OLDEST_VENV)/test.stamp  ## Run what holds on the oldest Celery and kombu, too
	$(OLDEST_VENV)/bin/python -m pytest $(SPREAD) 2 -m oldest tests/integration $(WORKERS)

test-batches: $(BATCHES_VENV)/test.stamp  ## Run what needs celery-batches, and what is to hold on its Celery 5.6
	$(BATCHES_VENV)/bin/python -m pytest $(SPREAD) 2 -m 'batches or between' $(WORKERS)

test-peers: $(PEERS_VENV)/test.stamp  ## Run Celery's and kombu's own tests with stock and with ours (half an hour)
	$(PEERS_VENV)/bin/python -m tests.peers

docs: $(VENV)/test.stamp  ## Build the documents as a site, in build/docs
	$(BIN)/mkdocs build --strict --quiet

soak: $(VENV)/test.stamp  ## Harm real workers for SOAK_SECONDS (60) and account for every message
	$(PYTEST) $(SOAK)

simulate: $(VENV)/test.stamp  ## Simulate HOURS worker-hours of everything that can go wrong
	$(BIN)/python -m tests.simulation --hours $(HOURS)

benchmark: $(VENV)/test.stamp  ## Compare throughput with a stock worker, side by side
	$(BIN)/python -m benchmarks.throughput

clean:  ## Remove what the other targets made
	rm -rf $(VENV) $(OLDEST_VENV) $(BATCHES_VENV) $(SAIL_VENV) $(PEERS_VENV) build/peers .venv-localstack .mypy_cache .pytest_cache .ruff_cache .hypothesis
