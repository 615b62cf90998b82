# Every target makes what it needs, from a clean checkout: `make demo` and `make test` are all a newcomer runs.
SHELL := /bin/bash
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
WORKERS ?= 2
UI_PORT ?= 3000
MLFLOW_VENV ?= .venv-mlflow
MLFLOW_PORT ?= 5000
# $(call free,PYTHON,PORT,COMMAND): ends with one line where somebody listens at the port: Dagster's daemon would stay alive.
free = $(1) -c 'import socket, sys; port, again = sys.argv[1:]; sys.exit(socket.socket().connect_ex(("127.0.0.1", int(port))) == 0 and f"port {port} is taken: {again}{int(port) + 1}")' '$(2)' '$(3)'
MLFLOW_VERSION := $(shell sed -n 's/^mlflow-skinny==//p' constraints.txt)

export DAGSTER_DISABLE_TELEMETRY := yes
export MLFLOW_DISABLE_TELEMETRY := true
# What Dagster calls beta or preview is pinned and tested here; the words would be printed by each of its processes.
QUIET := ignore:Parameter `allow_nonexistent_upstream_partitions`,ignore:Specifying a partitions_def on an AssetCheckSpec,ignore:Function `dev_command` is superseded

.PHONY: help demo miniature miniature-control miniature-plain test test-all ui mlflow-ui lint format bench install clean
.DEFAULT_GOAL := help

help:            ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## +/\t/' | expand -t 20

demo: $(INSTALLED) dagster_home/dagster.yaml  ## the whole flow on a simulated arena; ends with a funnel, scores and demo/report.html
	DAGSTER_HOME=$(CURDIR)/dagster_home MLFLOW_TRACKING_URI=$${MLFLOW_TRACKING_URI:-sqlite:///demo/mlflow.db} \
	  $(BIN)/trajectory-platform demo

# The run is mirrored to MLflow beside its own folder; `make mlflow-ui MLFLOW_TRACKING_URI=sqlite:///miniature/mlflow.db` shows it.
MINIATURE := DAGSTER_HOME=$(CURDIR)/dagster_home MLFLOW_TRACKING_URI=$${MLFLOW_TRACKING_URI:-sqlite:///miniature/mlflow.db} \
	  $(BIN)/trajectory-platform miniature

miniature: $(INSTALLED) dagster_home/dagster.yaml  ## five stages that really learn, on two cores; ends with a table and miniature/report.html
	@mkdir -p miniature
	$(MINIATURE)

miniature-control: $(INSTALLED) dagster_home/dagster.yaml  ## the same SFT on the unfiltered stream, compared pair by pair
	@mkdir -p miniature
	$(MINIATURE) --control

miniature-plain: $(INSTALLED) dagster_home/dagster.yaml  ## the same SFT where no miner writes the comparison of rows down
	@mkdir -p miniature
	$(MINIATURE) --plain

test: $(INSTALLED)      ## the default test suite
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile

test-all: $(INSTALLED)  ## the default suite and the slow tests
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m "not bench"

# Without days of your own the graph shows the demo's, so that there is something to look at.
ui: $(INSTALLED) dagster_home/dagster.yaml  ## Dagster on 127.0.0.1:3000 (UI_PORT changes the port)
	@$(call free,$(BIN)/python,$(UI_PORT),make ui UI_PORT=)
	@set -a; if [ -d demo/days ] && [ ! -e data/days ] && [ ! -e data/lake ] && [ -z "$$TRAJECTORY_PLATFORM_DATA_ROOT" ]; then \
	  echo "showing the demo's days (demo/); set TRAJECTORY_PLATFORM_DATA_ROOT for your own"; \
	  TRAJECTORY_PLATFORM_DATA_ROOT=demo/days; TRAJECTORY_PLATFORM_LAKE_URI=demo/lake; \
	  TRAJECTORY_PLATFORM_CHECKPOINT_ROOT=demo/checkpoints; TRAJECTORY_PLATFORM_INDEX_ROOT=demo/index; TRAJECTORY_PLATFORM_SEED=7; \
	  TRAJECTORY_PLATFORM_FIRST_DAY=$$(ls demo/days | grep -E '^[0-9]{4}-[0-9]{2}-[0-9]{2}$$' | head -1); \
	fi; \
	echo "(its warning of a dagster.yaml in this folder is no fault: dagster_home/dagster.yaml, which it reads, is a link to it)"; \
	echo "Dagster on http://127.0.0.1:$(UI_PORT) when it says 'Serving' (ten seconds on a quiet machine); the graph is at /asset-groups; Ctrl-C stops it"; \
	PYTHONWARNINGS='$(QUIET)' DAGSTER_HOME=$(CURDIR)/dagster_home exec $(BIN)/dagster dev -w workspace.yaml -h 127.0.0.1 -p $(UI_PORT)

# The platform only writes to MLflow (mlflow-skinny). Its web pages need the whole package, which wants another pyarrow
# than ours: it lives in an environment of its own, in the same version, and reads the same database and artifacts.
mlflow-ui: $(MLFLOW_VENV)/.installed  ## MLflow's pages on 127.0.0.1:5000 (MLFLOW_PORT); reads MLFLOW_TRACKING_URI or demo/mlflow.db
	@$(call free,$(MLFLOW_VENV)/bin/python,$(MLFLOW_PORT),make mlflow-ui MLFLOW_PORT=)
	@uri=$${MLFLOW_TRACKING_URI:-sqlite:///demo/mlflow.db}; file=$${uri#sqlite:///}; \
	case "$$uri" in sqlite:///*) ;; *) echo "MLFLOW_TRACKING_URI is $${uri%%:*}, no SQLite file: a server has its own pages"; exit 1;; esac; \
	if [ ! -f "$$file" ]; then echo "no database at $$file: make demo makes one, or set MLFLOW_TRACKING_URI=sqlite:///PATH"; exit 1; fi; \
	echo "MLflow on http://127.0.0.1:$(MLFLOW_PORT) in about ten seconds; Ctrl-C stops it"; \
	MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false exec $(MLFLOW_VENV)/bin/mlflow server --host 127.0.0.1 --port $(MLFLOW_PORT) --workers 1 \
	  --backend-store-uri "$$uri" --artifacts-destination "$$(dirname "$$(realpath "$$file")")/mlflow-artifacts"

$(MLFLOW_VENV)/.installed: constraints.txt
	$(PYTHON) -m venv $(MLFLOW_VENV)
	$(MLFLOW_VENV)/bin/python -m pip install --disable-pip-version-check --progress-bar off 'mlflow==$(MLFLOW_VERSION)'
	@touch $@

lint: $(INSTALLED)      ## format check, lint, types, import layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(INSTALLED)    ## rewrite to the project's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(INSTALLED)     ## every benchmark (about ten minutes); each prints its table
	@for script in $(filter-out benchmarks/gpu_check.py,$(wildcard benchmarks/*.py)); do echo "== $$script"; PYTHONPATH=. $(BIN)/python "$$script" || exit 1; done

install: $(INSTALLED)   ## only the virtual environment

# One resolver run over one pinned set. The stamp is written last: an interrupted install is started again.
$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; ok = (3, 11) <= sys.version_info[:2] < (3, 13); sys.exit(0 if ok else "Python 3.11 or 3.12 is needed, found " + sys.version.split()[0] + ": set PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check --progress-bar off -c constraints.txt -e '.[train,judge,dev]'
	@touch $@

dagster_home/dagster.yaml: dagster.yaml
	@mkdir -p dagster_home
	@ln -sf ../dagster.yaml $@
	@touch -h $@

clean:           ## remove the environment, caches and build outputs; data/ and dagster_home/ stay
	rm -rf $(VENV) $(MLFLOW_VENV) build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
