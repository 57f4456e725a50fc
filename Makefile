# Everything starts here. The first run of a target makes .venv; later ones cost nothing unless pyproject.toml changed.
#
#   make up                      three brokers and three controllers on this machine: 127.0.0.1:9092 to 9094
#   make up BASE_PORT=20000 DATA=/tmp/other SET="num.partitions=3 min.insync.replicas=1"
#   make status | down | clean   clean also removes the data
#   make demo                    lose a leader and the active controller under load, and no record
#   make demo SCENARIO=pause     or all-at-once, or rolling
#   make demo-page               the same on a page, with buttons: http://127.0.0.1:9644
#   make pipeline-demo           flights through a topic to Parquet by Spark, while things are killed
#   make check | test | compat   style and types | our tests | other people's clients
#   make kafka-tests             Apache Kafka's own integration tests on our nodes; ARGS='TopicCommand' or --selection
#   make docker-test             docker-compose.yml for real; needs a docker daemon
#   make lock                    docker/requirements.lock, by which the image is built, with the newest of everything
#   make diagrams                docs/state-machines.md, drawn from the tables in the code
#   make settings                docs/settings.md, from the models in settings/ and the sentences in docs/settings.tsv
#   make compiled                the loops over records as C, where there is a compiler
#   make simulate SEEDS=1-200    whole clusters under faults, one universe for each seed
#   make suite                   fault injection with checked histories; SUITE=regression or nightly
#   make mutants MINUTES=20      small changes of the cores, and whether the tests notice; SEED=1 ROOMS="storage kraft/raft"
#   make attack                  what an anonymous client can do to a cluster, and what it costs

DATA ?= .cluster
BASE_PORT ?=
SET ?=
ARGS ?=
SEEDS ?= 1-50
SCENARIO ?=
ROOMS ?=
MINUTES ?=
SAMPLE ?=
SEED ?=

# The first Python that can make a virtual environment.
PYTHON ?= $(shell for python in /usr/bin/python3.11 python3.11 python3; do \
	"$$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$python" && break; \
	done)

BIN := .venv/bin
BARNABAS := $(BIN)/barnabas cluster

.PHONY: settings demo-page pipeline-demo page-test spark-test up down status clean demo check test compat kafka-tests lock docker-test simulate suite attack mutants help features diagrams map bench compiled

help:
	@sed -n '3,21s/^# \{0,1\}//p' Makefile

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "make: needs Python 3.11 or newer with venv (Debian: apt install python3-venv)"; exit 1; }
	@$(PYTHON) -m venv .venv

# One stamp for each set of dependencies; a bigger set includes the smaller ones.
.venv/installed: pyproject.toml | $(BIN)/python
	@echo "installing into .venv"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@$(BIN)/python -m compileall -q barnabas broker kraft protocol runtime settings storage
	@touch $@

.venv/installed-dev: pyproject.toml | $(BIN)/python
	@echo "installing into .venv, with what tests and checks need"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@ .venv/installed

.venv/installed-compat: pyproject.toml | $(BIN)/python
	@echo "installing into .venv, with other people's clients"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev,compat]'
	@touch $@ .venv/installed-dev .venv/installed

.venv/installed-page: pyproject.toml | $(BIN)/python
	@echo "installing into .venv, with the page"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[page]'
	@touch $@ .venv/installed

.venv/installed-page-test: pyproject.toml | $(BIN)/python
	@echo "installing into .venv, with what drives a browser"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[page-test]'
	@touch $@ .venv/installed-dev .venv/installed-page .venv/installed

.venv/installed-spark: pyproject.toml | $(BIN)/python
	@echo "installing into .venv, with Spark"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev,pipeline-demo]'
	@touch $@ .venv/installed-dev .venv/installed

up: .venv/installed
	@$(BARNABAS) up --data $(DATA) $(if $(BASE_PORT),--base-port $(BASE_PORT)) $(foreach pair,$(SET),--set '$(pair)')

down: .venv/installed
	@$(BARNABAS) down --data $(DATA)

status: .venv/installed
	@$(BARNABAS) status --data $(DATA)

clean: .venv/installed
	@test ! -e $(DATA)/cluster.json || { $(BARNABAS) down --data $(DATA) && rm -rf $(DATA); }
	@rm -rf protocol/records/*.so build .mypy_cache .ruff_cache .pytest_cache .hypothesis .cache

demo: .venv/installed
	@$(BIN)/barnabas demo --data $(DATA) $(if $(BASE_PORT),--base-port $(BASE_PORT)) \
		$(foreach pair,$(SET),--set '$(pair)') $(if $(SCENARIO),--scenario $(SCENARIO)) $(ARGS)

demo-page: .venv/installed-page
	@$(BIN)/barnabas page --data $(DATA) $(if $(BASE_PORT),--base-port $(BASE_PORT)) --allow-faults --load $(ARGS)

pipeline-demo: .venv/installed-spark
	@$(BIN)/python -m barnabas.pipeline.demo --data $(DATA) $(if $(BASE_PORT),--base-port $(BASE_PORT)) $(ARGS)

check: .venv/installed-dev
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/pytest tests/house

test: .venv/installed-dev
	@$(BIN)/pytest -n auto --dist worksteal -m "not compat and not docker and not slow and not spark and not page" $(ARGS)

compat: .venv/installed-compat
	@tests/compat/install.sh
	@$(BIN)/pytest tests/compat -m compat $(ARGS)

kafka-tests: .venv/installed-dev
	@tests/kafka/install.sh
	@$(BIN)/python -m tests.kafka $(ARGS)

spark-test: .venv/installed-spark
	@tests/pipeline/install.sh
	@$(BIN)/pytest tests/pipeline -m "spark and not slow" $(ARGS)

page-test: .venv/installed-page-test
	@tests/page/install.sh
	@$(BIN)/pytest tests/page -m page $(ARGS)

lock:
	@$(PYTHON) -m venv .venv/lock && .venv/lock/bin/pip install --quiet pip-tools
	@.venv/lock/bin/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras --no-annotate --no-header \
	    --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --upgrade --extra page \
	    --output-file .venv/lock/requirements.lock pyproject.toml docker/build.in
	@{ grep '^#' docker/requirements.lock | head -2; grep -v -e '^#' -e '^$$' .venv/lock/requirements.lock; } > .venv/lock/whole
	@mv .venv/lock/whole docker/requirements.lock

docker-test: .venv/installed-compat
	@$(BIN)/pytest tests/docker -m docker $(ARGS)

features: .venv/installed-dev
	@$(BIN)/python docs/make_features.py

map:
	@python3 docs/print_map.py $(ROOMS)

settings: .venv/installed-dev
	@$(BIN)/python docs/make_settings.py

diagrams: .venv/installed-dev
	@$(BIN)/python docs/draw_state_machines.py

compiled: .venv/installed-dev
	@BARNABAS_COMPILED=1 $(BIN)/python -W ignore setup.py -q build_ext --inplace

bench: .venv/installed-compat
	@bench/run.sh

attack: .venv/installed-dev
	@$(BIN)/python jepsen-style attack $(if $(BASE_PORT),--base-port $(BASE_PORT)) $(ARGS)

suite: .venv/installed-dev
	@$(BIN)/python jepsen-style suite $(or $(SUITE),quick) $(ARGS)

mutants: .venv/installed-dev
	@$(BIN)/python -m tests.mutants $(if $(ROOMS),--rooms $(ROOMS)) $(if $(MINUTES),--minutes $(MINUTES)) \
		$(if $(SAMPLE),--sample $(SAMPLE)) $(if $(SEED),--seed $(SEED)) $(ARGS)

simulate: .venv/installed-dev
	@$(BIN)/python jepsen-style seeds $(SEEDS) --also tests/simulation/seeds.txt $(ARGS)
