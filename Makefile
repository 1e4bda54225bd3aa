# `make` lists the targets. Every one of them installs what it needs first, which costs nothing once it is there.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules --no-print-directory

VENV ?= .venv
PYTHON ?=
ARGS ?=
PY := $(VENV)/bin/python
LOCKS := requirements.lock requirements-dev.lock
SPARK_JAVA := 17
# What Java and Spark say on every start before a job can quieten them.
START_NOISE := ^WARNING: Using incubator modules|^Using Spark.s default log4j profile|^Setting Spark log level|WARN (Utils|NativeCodeLoader):|^[0-9/]+ [0-9:]+ INFO

# A Hadoop node's own settings point to its Spark, its Python and its file system; what make runs is local.
unexport SPARK_HOME SPARK_CONF_DIR HADOOP_CONF_DIR YARN_CONF_DIR PYSPARK_PYTHON PYSPARK_DRIVER_PYTHON PYTHONPATH PYTHONHOME
ifneq ($(shell grep -sE '^JAVA_VERSION="(1\.|9[."]|1[0-6][."])' "$(JAVA_HOME)/release"),)
$(info JAVA_HOME=$(JAVA_HOME) is older than Java $(SPARK_JAVA), which Spark needs: make leaves it aside)
unexport JAVA_HOME
endif

.PHONY: help
help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo 'Variables: ARGS="…" goes to the command, PYTHON=… is the Python for a new $(VENV), VENV=… another environment.'

.PHONY: install
install: $(VENV)/.installed  ## make .venv with pinned, hash-checked packages, and find a Java for Spark

$(VENV)/.installed: $(LOCKS) requirements-java.lock jobs/install.py | $(PY)
	@echo "Installing the packages of $(LOCKS) into $(VENV)"
	@$(PY) -m pip install --quiet --disable-pip-version-check --no-input --require-hashes $(LOCKS:%=-r %)
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
test: install  ## lint, types and every test that needs no cluster (ARGS="-k name" to choose)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/pytest $(ARGS)

.PHONY: data
data: install  ## fetch the benchmarks' corpora into data/
	@$(PY) benchmarks/fetch_data.py $(ARGS)

.PHONY: bench-featurize
bench-featurize: install  ## measure featurize against its peers
	@$(PY) -m benchmarks.featurize $(ARGS)

.PHONY: bench-scaling
bench-scaling: install  ## measure how memory and CPU time grow with the corpus and the vocabulary
	@$(PY) -m benchmarks.scaling $(ARGS)

.PHONY: zip
zip: install  ## build/textmill.zip, the code as spark-submit --py-files takes it
	@mkdir -p build
	@$(PY) -m jobs.package build/textmill.zip $(ARGS)

.PHONY: format
format: install  ## sort imports, fix what ruff can fix, and format
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

.PHONY: lock
lock: install  ## pin the requirements anew (ARGS=--upgrade for newer versions)
	@$(PY) -m venv build/lock && build/lock/bin/pip install --quiet --disable-pip-version-check uv
	@for name in requirements requirements-dev requirements-java; do \
	  build/lock/bin/uv pip compile --quiet --universal --python-version 3.11 --fork-strategy fewest --generate-hashes \
	    --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" $(ARGS) $$name.in -o $$name.lock; \
	done

.PHONY: clean
clean:  ## remove what was built, the demo and all caches, numba's too; .venv and data/ stay
	@rm -rf build demo .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse metastore_db derby.log
	@find . -name __pycache__ -type d -not -path './.*' -not -path './$(VENV)/*' -prune -exec rm -rf {} +
