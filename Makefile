# agentdesk: `make up` runs it, `make test` proves it. Both bring what they need; see README.md.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Tests that load the machine themselves, or watch what moves on a page: one after the other. The rest by two processes.
ALONE := tests/browser tests/chaos tests/sandboxes tests/stack
UV_VERSION := 0.13.9

.PHONY: help up test test-long check lint fmt lock test-model chaos chaos-alerts bench-engine bench-sleep bench-idle bench-retention bench-detectors bench-context bench-quota bench-costs bench-budget bench-alerts pictures sandbox-image

help:
	@echo "make up            run everything on this machine (Ctrl-C stops it)"
	@echo "make test          every check and every test but the long ones and those that need a local model"
	@echo "make test-long     the tests that take minutes each"
	@echo "make lint | fmt    the static checks | put code and templates in form"
	@echo "make lock          write requirements*.lock anew from pyproject.toml"
	@echo "make sandbox-image build the sandbox image"
	@echo "make test-model    the tests that talk to a real local model"
	@echo "make chaos SEED=n  kill and cut off parts of the product while it works, then audit it (SEEDS=1-20 for many)"
	@echo "make chaos-alerts SEED=n  500 alerts while workers, scheduler and receiver are killed, then audit what arrived"
	@echo "make bench-engine  the engine's own time per step"
	@echo "make bench-sleep   saving, sleeping, waking, restoring and forking, beside docker commit"
	@echo "make bench-idle    1,000 sleeping workspaces, and 20 that wake at once"
	@echo "make bench-retention  what 500 steps on 500 MB keep stored"
	@echo "make bench-context  bytes that a step writes while the history grows to 500 steps, beside LangGraph"
	@echo "make bench-quota   admission: fairness and use of a pool in a simulation of 10,000 users, and its cost at the database"
	@echo "make bench-detectors  precision and recall of the detectors on the labelled traces, beside others' rules"
	@echo "make bench-costs  every cost page over five million usage records, and its total beside the sum of them"
	@echo "make bench-budget  64 calls that begin at once on 0.50 USD, beside a counter and a LiteLLM proxy"
	@echo "make bench-alerts  from a loop's decisive event to the receiver; 10,000 incidents on one pool; what flaps"
	@echo "make pictures      the pictures in docs/"

up:
	@$(PYTHON) agentdesk/bootstrap.py up
	@exec $(BIN)/python -m agentdesk.up

test:
	@$(PYTHON) agentdesk/bootstrap.py test
	@$(MAKE) --no-print-directory check
	@failed=0; \
	$(BIN)/python -m pytest -n 2 --dist loadfile $(ALONE:%=--ignore=%) -m "not model and not long" || failed=1; \
	$(BIN)/python -m pytest $(ALONE) -m "not model and not long" || failed=1; \
	exit $$failed

test-long:
	@$(PYTHON) agentdesk/bootstrap.py test
	@exec $(BIN)/python -m pytest -m long

# What can be told without running anything. Nothing here needs a server.
check:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m mypy
	$(BIN)/lint-imports
	@if [ -d templates ]; then echo "$(BIN)/djlint --check --lint templates" && $(BIN)/djlint --quiet --check templates && $(BIN)/djlint --quiet --lint templates; fi
	AGENTDESK_HTTPS=1 AGENTDESK_SANDBOX_DRIVER=docker $(BIN)/python manage.py check --deploy --fail-level WARNING

lint:
	@$(PYTHON) agentdesk/bootstrap.py lint
	@$(MAKE) --no-print-directory check

fmt:
	@$(PYTHON) agentdesk/bootstrap.py lint
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	@if [ -d templates ]; then $(BIN)/djlint --quiet --reformat templates || true; fi

# One lock for running, one that adds what the tests need. No index and no path of the machine that made them.
COMPILE = build/uv/bin/uv pip compile pyproject.toml --generate-hashes --universal --python-version 3.11 \
	--no-emit-index-url --no-emit-find-links --quiet --custom-compile-command "make lock"

lock: build/uv/bin/uv
	$(COMPILE) --output-file requirements.lock
	$(COMPILE) --extra dev --constraint requirements.lock --output-file requirements-dev.lock

build/uv/bin/uv:
	$(PYTHON) -m venv build/uv
	build/uv/bin/python -m pip install --quiet uv==$(UV_VERSION)

sandbox-image:
	@$(PYTHON) agentdesk/bootstrap.py up
	@exec $(BIN)/python -m agentdesk.prepare --only-image

test-model:
	@$(PYTHON) agentdesk/bootstrap.py test
	@$(BIN)/python -m tests.model.weights
	@exec $(BIN)/python -m pytest -m model -s tests/model

chaos:
	@$(PYTHON) agentdesk/bootstrap.py test
	@SEED="$(SEED)" SEEDS="$(SEEDS)" exec $(BIN)/python -m tests.chaos.run $(CHAOS)

chaos-alerts:
	@$(PYTHON) agentdesk/bootstrap.py test
	@SEED="$(SEED)" SEEDS="$(SEEDS)" exec $(BIN)/python -m tests.chaos.alerts $(CHAOS)

bench-engine:
	@$(PYTHON) agentdesk/bootstrap.py test
	@exec $(BIN)/python -m tests.bench.engine

bench-sleep:
	@$(PYTHON) agentdesk/bootstrap.py test
	@exec $(BIN)/python -m tests.bench.sleep $(ARGS)

bench-idle:
	@$(PYTHON) agentdesk/bootstrap.py test
	@exec $(BIN)/python -m tests.bench.idle $(ARGS)

bench-retention:
	@$(PYTHON) agentdesk/bootstrap.py test
	@exec $(BIN)/python -m tests.bench.retention $(ARGS)

bench-context:
	@$(PYTHON) agentdesk/bootstrap.py test
	@exec $(BIN)/python -m tests.bench.context $(ARGS)

bench-detectors:
	@$(PYTHON) agentdesk/bootstrap.py test
	@exec $(BIN)/python -m tests.bench.detectors

bench-quota:
	@$(PYTHON) agentdesk/bootstrap.py test
	@exec $(BIN)/python -m tests.bench.quota $(ARGS)

bench-costs:
	@$(PYTHON) agentdesk/bootstrap.py test
	@exec $(BIN)/python -m tests.bench.costs $(ARGS)

bench-budget:
	@$(PYTHON) agentdesk/bootstrap.py test
	@exec $(BIN)/python -m tests.bench.budget $(ARGS)

bench-alerts:
	@$(PYTHON) agentdesk/bootstrap.py test
	@exec $(BIN)/python -m tests.bench.alerts $(ARGS)

pictures:
	@$(PYTHON) agentdesk/bootstrap.py test
	@exec $(BIN)/python -m tests.browser.pictures
