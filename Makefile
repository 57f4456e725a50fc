# The first run of a target makes .venv; later runs reuse it unless pyproject.toml or constraints.txt changed.
#
#   make up                      three brokers and three controllers on this machine: 127.0.0.1:9092 to 9094
#   make up BROKERS=12 CELLS=4   the same with more brokers, four on each host (docs/cells.md)
#   make up BASE_PORT=20000 DATA=/tmp/other SET="num.partitions=3 min.insync.replicas=1"
#   make up S3=1                 the same with an S3 server and tiered storage on it
#   make status | down           show or stop the cluster
#   make clean | distclean       remove data and build files | and .venv
#   make demo                    kill a leader and the active controller under load; no record is lost
#   make demo SCENARIO=pause     or all-at-once, or rolling
#   make demo-page               the same on a page, with buttons: http://127.0.0.1:9644
#   make pipeline-demo           flights through a topic to Parquet by Spark, under faults
#   make check | test | compat   style and types | our tests | other projects' clients
#   make kafka-tests             Apache Kafka's own integration tests on our nodes; ARGS='TopicCommand' or --selection
#   make docker-test             docker-compose.yml on a docker daemon
#   make package-test            build wheel and sdist, install each into a fresh environment, run a cluster from it
#   make upgrade-test            roll six nodes from an earlier version to this one and back, under a producer
#   make lock                    update constraints.txt and docker/requirements.lock to the newest versions
#   make diagrams                docs/state-machines.md, drawn from the tables in the code
#   make settings                docs/settings.md, from the models in settings/ and the sentences in docs/settings.tsv
#   make compiled                the loops over records as C, where there is a compiler
#   make wheels                  packages into dist/: sdist, pure wheel, and one with compiled loops for each Python of ARGS
#   make simulate SEEDS=1-200    simulated clusters under faults, one run per seed
#   make suite                   fault injection with checked histories; SUITE=regression or nightly
#   make mutants MINUTES=20      mutation tests of the cores; SEED=1 ROOMS="storage kraft/raft"
#   make attack                  cost of hostile clients
#   make scale PARTITIONS=30000  memory, failover, stop and start of a cluster with many partitions
#   make calls                   calls of Python functions for one append, one transaction, one record at the tail
#   make bench-delayed           a million delayed records: memory, lateness, rate
#   make s3-test                 stores and brokers while an S3 server is killed under them
#   make dev-bench               barnabas dev and proxy beside kfake, mockafka, Kafka's JVM, Toxiproxy

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
PARTITIONS ?=
VERSITYGW ?= v1.8.0

# The first Python of at least 3.11 that can make a virtual environment.
PYTHON ?= $(shell for python in /usr/bin/python3.11 python3.11 python3; do \
	"$$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$python" && break; \
	done)

BIN := .venv/bin
BARNABAS := $(BIN)/barnabas cluster

.PHONY: s3-test versitygw settings map package-test upgrade-test distclean demo-page pipeline-demo page-test spark-test up down status clean demo check test compat compat-nightly kafka-tests lock docker-test simulate suite attack scale mutants help features diagrams bench bench-delayed calls dev-bench compiled wheels

help:
	@sed -n '3,31s/^# \{0,1\}//p' Makefile

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "make: needs Python 3.11 or newer with venv (Debian: apt install python3-venv)"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "make: needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1)"; exit 1; }
	@$(PYTHON) -m venv .venv

INSTALL = $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	{ echo "make: .venv has $$($(BIN)/python --version); needs Python 3.11 or newer: rm -rf .venv"; exit 1; }; \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt -e

# One stamp for each set of dependencies; a bigger set includes the smaller ones.
.venv/installed: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing into .venv"
	@$(INSTALL) .
	@$(BIN)/python -m compileall -q barnabas broker kraft protocol runtime settings storage
	@touch $@

.venv/installed-dev: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing into .venv, with tools for tests"
	@$(INSTALL) '.[dev]'
	@touch $@ .venv/installed-s3 .venv/installed

.venv/installed-compat: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing into .venv, with other projects' clients"
	@$(INSTALL) '.[dev,compat]'
	@touch $@ .venv/installed-dev .venv/installed

.venv/installed-page: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing into .venv, with the page"
	@$(INSTALL) '.[page]'
	@touch $@ .venv/installed

.venv/installed-page-test: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing into .venv, with playwright"
	@$(INSTALL) '.[page-test]'
	@touch $@ .venv/installed-dev .venv/installed-page .venv/installed

.venv/installed-spark: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing into .venv, with Spark"
	@$(INSTALL) '.[dev,pipeline-demo]'
	@touch $@ .venv/installed-dev .venv/installed

# An S3 server of one file. The first build takes minutes.
.cache/versitygw/versitygw:
	@command -v go >/dev/null || { echo "make: versitygw needs Go 1.25 or newer to build; or put versitygw on the PATH"; exit 1; }
	@echo "building the S3 server versitygw, once"
	@GOBIN=$(CURDIR)/.cache/versitygw go install github.com/versity/versitygw/cmd/versitygw@$(VERSITYGW)

versitygw:
	@command -v versitygw >/dev/null || $(MAKE) --silent --no-print-directory .cache/versitygw/versitygw

.venv/installed-s3: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing into .venv, with S3"
	@$(INSTALL) '.[s3]'
	@touch $@ .venv/installed

up: .venv/installed $(if $(S3),.venv/installed-s3 versitygw)
	@$(BARNABAS) up --data $(DATA) $(if $(SECURE),--secure) $(if $(S3),--s3) \
		$(if $(BROKERS),--brokers $(BROKERS)) $(if $(CELLS),--cells $(CELLS)) $(if $(BASE_PORT),--base-port $(BASE_PORT)) $(foreach pair,$(SET),--set '$(pair)')

down: .venv/installed
	@$(BARNABAS) down --data $(DATA)

status: .venv/installed
	@$(BARNABAS) status --data $(DATA)

clean: .venv/installed
	@test ! -e $(DATA)/cluster.json || { $(BARNABAS) down --data $(DATA) && rm -rf $(DATA); }
	@test ! -e $(DATA)/conf/broker-1.properties || { rm -rf $(DATA)/conf && rmdir --ignore-fail-on-non-empty $(DATA); }
	@rm -rf protocol/records/*.so build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .cache

distclean: clean
	@rm -rf .venv

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
	@$(BIN)/pytest tests/compat -m "compat and not slow" $(ARGS)

compat-nightly: .venv/installed-compat
	@tests/compat/install.sh nightly
	@$(BIN)/pytest tests/compat -m "compat and slow" $(ARGS)

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
	    --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --upgrade --extra page --extra registry --extra s3 \
	    --output-file .venv/lock/requirements.lock pyproject.toml docker/build.in
	@{ grep '^#' docker/requirements.lock | head -2; grep -v -e '^#' -e '^$$' .venv/lock/requirements.lock; } > .venv/lock/whole
	@mv .venv/lock/whole docker/requirements.lock
	@.venv/lock/bin/pip-compile --quiet --strip-extras --allow-unsafe --no-annotate --no-header --no-emit-index-url \
	    --no-emit-trusted-host --no-emit-find-links --upgrade --extra dev --extra compat --extra gssapi --extra page-test \
	    --extra pipeline-demo --output-file .venv/lock/constraints.txt pyproject.toml
	@{ grep '^#' constraints.txt; grep -v -e '^#' -e '^$$' .venv/lock/constraints.txt; } > .venv/lock/whole
	@mv .venv/lock/whole constraints.txt

s3-test: .venv/installed-dev versitygw
	@$(BIN)/pytest tests/runtime/stores tests/broker/remote/test_tiers_on_s3.py tests/barnabas/cluster/test_local_store.py $(ARGS)

docker-test: .venv/installed-compat
	@$(BIN)/pytest tests/docker -m docker $(ARGS)

package-test:
	@test -n "$(PYTHON)" || { echo "make: needs Python 3.11 or newer with venv (Debian: apt install python3-venv)"; exit 1; }
	@PYTHON="$(PYTHON)" tests/packaging/try_package.sh $(ARGS)

upgrade-test: .venv/installed-dev
	@$(BIN)/python tests/packaging/try_upgrade.py $(ARGS)

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

wheels:
	@PYTHON="$(PYTHON)" .ci/wheels dist $(ARGS)

bench: .venv/installed-compat
	@bench/run.sh

scale: .venv/installed-dev
	@$(BIN)/python bench/scale.py $(if $(BASE_PORT),--base-port $(BASE_PORT)) \
		$(if $(PARTITIONS),--partitions $(PARTITIONS)) $(ARGS)

calls: .venv/installed-dev
	@$(BIN)/python bench/calls.py $(ARGS)

bench-delayed: .venv/installed-dev
	@$(BIN)/python bench/delayed.py $(if $(BASE_PORT),--base-port $(BASE_PORT)) $(ARGS)

dev-bench: .venv/installed-compat
	@$(BIN)/python bench/dev.py $(ARGS)

attack: .venv/installed-dev
	@$(BIN)/python jepsen-style attack $(if $(BASE_PORT),--base-port $(BASE_PORT)) $(ARGS)

suite: .venv/installed-dev
	@$(BIN)/python jepsen-style suite $(or $(SUITE),quick) $(ARGS)

mutants: .venv/installed-dev
	@$(BIN)/python -m tests.mutants $(if $(ROOMS),--rooms $(ROOMS)) $(if $(MINUTES),--minutes $(MINUTES)) \
		$(if $(SAMPLE),--sample $(SAMPLE)) $(if $(SEED),--seed $(SEED)) $(ARGS)

simulate: .venv/installed-dev
	@$(BIN)/python jepsen-style seeds $(SEEDS) --also tests/simulation/seeds.txt $(ARGS)
