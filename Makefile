# Everything runs from here; `make` alone lists the targets. Needed before: make, Python 3.11 or 3.12, Java 17 or 21.

VENV   := .venv
PY     := $(VENV)/bin/python
STAMP  := $(VENV)/.installed
PIP    := $(PY) -m pip install --quiet --disable-pip-version-check --no-compile
# Further arguments: make test ARGS="tests/infra -x", make demo ARGS=…
ARGS   ?=

# The first of these that is new enough (and not too new for the wheels that are needed).
FIND_PYTHON = for p in $(PYTHON) python3 python3.12 python3.11; do \
	"$$p" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 13))' 2>/dev/null && { echo "$$p"; break; }; done

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo test check lint kernels bench soak campaign clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## virtual environment, jars, Redis; quick when nothing is missing
	@$(PY) -m infra.local setup

demo: setup ## brokers, subscribers and publishers on real Kafka, Redis and Spark; checks every delivery (ARGS=--ui: then the console)
	@$(PY) -m producers.demo $(ARGS)

# Three at once on two cores: a test on real services waits for a third of its time.
PYTEST := $(PY) -m pytest $(if $(ARGS),$(ARGS),-n 3 --dist loadfile --no-loadscope-reorder)

test: setup $(if $(ARGS),,kernels) ## all tests, those on real Kafka, Redis and Spark included
	@$(PYTEST)

# What is fetched for the set-up is waited for: lint and compilers have the processor meanwhile.
check: $(STAMP) ## lint, types, import rules, then the tests; what CI runs
	@$(MAKE) --no-print-directory -j 3 setup lint kernels
	@$(PYTEST)

kernels: $(STAMP)
	@$(PY) -m streaming.precompile tests/every_method.toml

lint: $(STAMP)
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/mypy
	@$(VENV)/bin/lint-imports

bench: setup ## one benchmark (make bench NAME=matchers), or all of them in turn
	@set -e; for file in $(if $(NAME),benchmarks/$(NAME).py,$(filter-out benchmarks/soak.py benchmarks/campaign.py,$(shell grep -l __main__ benchmarks/*.py))); do \
		name=$$(basename "$$file" .py); echo "== $$name"; $(PY) -m "benchmarks.$$name" $(ARGS); done

soak: setup ## the simulated world with faults, 10 minutes (make soak ARGS="--minutes 600")
	@$(PY) -m benchmarks.soak $(ARGS)

campaign: setup ## 400 faults on real Kafka, Redis and Spark under load, hours (make campaign ARGS="--faults 12 --short")
	@$(PY) -m benchmarks.campaign $(ARGS)

clean: ## stop local services; remove their data, caches and builds (the virtual environment stays)
	@if [ -x $(PY) ]; then $(PY) -m infra.local down; fi
	@rm -rf var build dist ./*.egg-info benchmarks/out .hypothesis .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
	@find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +
	@rm -f $(STAMP)

# A new pyproject.toml is installed again; anything else is found through the editable install. Spark comes as 450 MB of
# sources, of which pip makes a wheel: to compress that takes twice the time, and it is unpacked at once. What fetches the
# jars is in it, and does so from then on; `infra.local setup` waits for it, and says what could not be had.
$(STAMP): pyproject.toml
	@if [ ! -x $(PY) ]; then \
		python=$$($(FIND_PYTHON)); \
		if [ -z "$$python" ]; then echo "no Python 3.11 or 3.12 found: install one, or run make PYTHON=/path/to/python3" >&2; exit 1; fi; \
		echo "making $(VENV) with $$python"; \
		"$$python" -m venv $(VENV) || { rm -rf $(VENV); exit 1; }; fi
	@echo "installing the Python packages into $(VENV)"
	@$(PIP) --config-settings=--build-option=--compression=stored "$$(sed -n 's/^  "\(pyspark==.*\)",$$/\1/p' pyproject.toml)"
	@$(PY) -m infra.local.jars & \
		$(PIP) -e ".[router,formats,kafka-python,ui,local,bench,dev]"
	@touch $@
