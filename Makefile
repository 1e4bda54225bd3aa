# `make` lists the targets. Every one of them installs what it needs first, which costs nothing once it is there.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules --no-print-directory

VENV ?= .venv
VENV35 ?= .venv-spark35
PYTHON ?=
WHEELHOUSE ?=
ARGS ?=
PY := $(VENV)/bin/python
LOCKS := requirements.lock requirements-dev.lock
SPARK_JAVA := 17
PIP := -m pip --quiet --disable-pip-version-check --no-input
# What Java and Spark say on every start before a job can quieten them.
START_NOISE := ^WARNING: Using incubator modules|^Using Spark.s default log4j profile|^Setting Spark log level|WARN (Utils|NativeCodeLoader):|^[0-9/]+ [0-9:]+ INFO

# A Hadoop node's own settings point to its Spark, its Python and its file system; what make runs is local.
unexport SPARK_HOME SPARK_CONF_DIR HADOOP_CONF_DIR YARN_CONF_DIR PYSPARK_PYTHON PYSPARK_DRIVER_PYTHON PYTHONPATH PYTHONHOME
ifneq ($(shell grep -sE '^JAVA_VERSION="(1\.|9[."]|1[0-6][."])' "$(JAVA_HOME)/release"),)
$(info JAVA_HOME=$(JAVA_HOME) is older than Java $(SPARK_JAVA), which Spark needs: make leaves it aside)
unexport JAVA_HOME
endif

ifneq ($(WHEELHOUSE),)
LOCKS := $(LOCKS:%=$(WHEELHOUSE)/%)
export PIP_NO_INDEX := 1
export PIP_FIND_LINKS := $(abspath $(WHEELHOUSE))
endif

.PHONY: help
help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo 'Variables: ARGS="…" goes to the command, PYTHON=… is the Python for a new $(VENV), VENV=… another environment.'
	@echo 'WHEELHOUSE=… is the folder that make wheelhouse built elsewhere, in place of the internet.'

.PHONY: install
install: $(VENV)/.installed  ## make .venv with pinned, hash-checked packages, and find a Java for Spark

$(VENV)/.installed: $(LOCKS) requirements-java.lock requirements-java17.lock jobs/install.py | $(PY)
	@echo "Installing the packages of $(LOCKS) into $(VENV)"
	@$(PY) $(PIP) install --require-hashes $(LOCKS:%=-r %)
	@$(PY) -m jobs.install
	@touch $@

$(PY):
	@for python in $(or $(PYTHON),python3 python3.13 python3.12 python3.11); do \
	  if "$$python" -c 'import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; \
	  then echo "Making $(VENV) with $$("$$python" --version)"; exec "$$python" -m venv "$(VENV)"; fi; \
	done; \
	echo "No Python 3.11, 3.12 or 3.13 with venv $(if $(PYTHON),at $(PYTHON),on PATH): install one (Debian:" \
	  "apt install python3-venv) or name it: make install PYTHON=/path/to/python3.12" >&2; exit 1

.PHONY: demo
demo: install  ## features from a small real corpus, in demo/
	@mkdir -p demo
	@$(VENV)/bin/spark-submit jobs/featurize.py --input tests/data/emails.jsonl.gz --output demo/features \
	  --model demo/model --overwrite $(ARGS) 2> >(grep --line-buffered -vE '$(START_NOISE)' >&2)

.PHONY: test
test: install $(if $(shell command -v mvn),cluster-jars)  ## lint, types and all tests but those marked slow (ARGS="-k name" to choose)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/pytest $(ARGS)

.PHONY: test-cluster
test-cluster: install cluster-jars environment zip  ## all tests on the Hadoop cluster, those with Docker where it answers (up to an hour)
	$(VENV)/bin/pytest tests/cluster -m "not slow" $(ARGS)

.PHONY: test-long
test-long: install cluster-jars environment zip  ## all tests marked slow, those on the cluster too (hours)
	$(VENV)/bin/pytest -m slow $(ARGS)

.PHONY: test-spark35
test-spark35:  ## the jobs' tests with Spark 3.5, Python 3.11 and Java 17, in .venv-spark35
	@$(MAKE) install VENV=$(VENV35) LOCKS=requirements-spark35.lock PYTHON=$(or $(PYTHON),python3.11)
	env -u JAVA_HOME $(VENV35)/bin/pytest tests/jobs $(ARGS)

.PHONY: cluster-jars
cluster-jars: build/cluster/hadoop/.fetched build/cluster/hive/.fetched  ## fetch Hadoop's and Hive's daemons for the tests (by Maven)

build/cluster/%/.fetched: docker/%.xml
	@echo "Fetching the jars of docker/$*.xml"
	@rm -rf $(@D) && mvn --quiet --batch-mode -f $< dependency:copy-dependencies -DoutputDirectory=$(CURDIR)/$(@D)
	@touch $@

.PHONY: up
up:  ## start the Hadoop cluster of docker-compose.yml (PROFILE=hdfs|yarn|hive for a part) and wait until it is healthy
	docker compose $(if $(PROFILE),--profile $(PROFILE)) up --build --wait --quiet-pull $(ARGS)

.PHONY: down
down:  ## stop that cluster and delete its data
	docker compose --profile all down --volumes

.PHONY: cluster-up
cluster-up: install cluster-jars  ## start the same daemons as plain processes, without Docker, and print how to reach them
	@$(PY) -m tests.cluster.processes up

.PHONY: cluster-down
cluster-down:  ## stop those processes and delete their data
	@$(PY) -m tests.cluster.processes down

.PHONY: data
data: install  ## fetch the benchmarks' corpora into data/
	@$(PY) benchmarks/fetch_data.py $(ARGS)

.PHONY: bench-featurize
bench-featurize: install  ## measure featurize against its peers
	@$(PY) -m benchmarks.featurize $(ARGS)

.PHONY: bench-scaling
bench-scaling: install  ## measure how memory and CPU time grow with the corpus and the vocabulary
	@$(PY) -m benchmarks.scaling $(ARGS)

.PHONY: bench-sql
bench-sql: install  ## measure tokenising in Spark SQL against built-ins and a row UDF
	@$(PY) -m benchmarks.sql $(ARGS)

.PHONY: bench-train
bench-train: install  ## measure train against XGBoost alone and on Spark, and its classifiers' quality
	@$(PY) -m benchmarks.train $(ARGS)

.PHONY: zip
zip: install  ## build/textmill.zip, the code as spark-submit --py-files takes it
	@mkdir -p build
	@$(PY) -m jobs.package build/textmill.zip $(ARGS)

.PHONY: environment
environment: build/environment.tgz  ## build/environment.tgz, the jobs' Python packages as spark-submit --archives takes them

build/environment.tgz: $(firstword $(LOCKS)) | install
	@echo "Packing the packages of $<, without pyspark, which comes with Spark"
	@rm -rf build/environment && $(PY) -m venv build/environment
	@build/environment/bin/python $(PIP) install --require-hashes -r $<
	@$(VENV)/bin/venv-pack --quiet --force --prefix build/environment --output $@ \
	  --exclude '*/site-packages/pyspark/*' --exclude '*/site-packages/py4j/*'

.PHONY: wheelhouse
wheelhouse: | $(PY)  ## build/wheelhouse, all packages as wheels, for make install WHEELHOUSE=… without internet
	@rm -rf build/wheelhouse && mkdir -p build/wheelhouse
	@for lock in $(LOCKS); do \
	  $(PY) $(PIP) wheel --no-deps --require-hashes -r $$lock --wheel-dir build/wheelhouse; \
	  (cd build/wheelhouse && sha256sum *.whl | awk '{ split($$2, part, "-"); \
	    print part[1] "==" part[2] " --hash=sha256:" $$1 }' >$$lock); \
	done
	@$(PY) $(PIP) download --no-deps --require-hashes -r requirements-java.lock --dest build/wheelhouse
	@echo "build/wheelhouse holds the packages for $$($(PY) --version) on $$(uname -sm): make install WHEELHOUSE=build/wheelhouse"

.PHONY: format
format: install  ## sort imports, fix what ruff can fix, and format
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

.PHONY: lock
lock: install  ## pin the requirements anew (ARGS=--upgrade for newer versions)
	@$(PY) -m venv build/lock && build/lock/bin/pip install --quiet --disable-pip-version-check uv
	@for name in requirements requirements-dev requirements-spark35 requirements-java requirements-java17; do \
	  [ $$name != requirements-spark35 ] || cat requirements.lock requirements-dev.lock >$$name.lock; \
	  build/lock/bin/uv pip compile --quiet --universal --python-version 3.11 --fork-strategy fewest --generate-hashes \
	    --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" $(ARGS) $$name.in -o $$name.lock; \
	done  # uv keeps the versions that it finds in the lock: so those of Spark 3.5 are the others'

.PHONY: clean
clean:  ## remove what was built, the demo and all caches, numba's too; .venv and data/ stay
	@rm -rf build demo .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse metastore_db derby.log
	@find . -name __pycache__ -type d -not -path './.*' -not -path './$(VENV)/*' -prune -exec rm -rf {} +
