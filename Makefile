# make demo   environment, install, and train, use and score the phrasebook translator
# make check  lint, types, unit tests without the slow ones (3 minutes)
# make test   environment, lint, types; unit tests, laws, parity, and the command end to end (10 minutes)
# make test-all  everything: all cases, larger amounts, fresh random examples, other instruction sets (hours)
# make bench  speed and time to quality, compared with other libraries (hours; BENCH=--quick: minutes)
# make bench-serve  the measurements of heedful serve, into its page of the documentation (a quarter of an hour)
# make pages  the generated pages of the documentation, after a change of settings, messages, options, claims or taps
# make docs   the documentation as a site, in site/, with the lab's gallery (LAB=--short: quick ones)
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# Byte code is always written, because rewriting the assertions of all tests is slow.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 2 --dist loadfile

.PHONY: demo test test-all check bench bench-serve docs pages lint types format clean

# Reinstalled when the dependencies change. The constraints pin every version.
$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("heedful needs Python 3.11 or newer, this is %d.%d" % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,docs,tensorboard]'
# Compile to byte code, which saves a second per command if Python is configured not to write it.
	$(BIN)/python -m compileall -q src
	touch $@

# The libraries that heedful is compared with.
$(VENV)/bench-installed: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]'
	touch $@

# For a test of the page of `heedful serve`, which is skipped where npm is missing.
$(VENV)/node_modules: $(VENV)/installed
	npm install --silent --no-save --prefix $(VENV) axe-core@4.14.1 || echo 'not installed: axe-core'

demo: $(VENV)/installed
	$(BIN)/heedful demo

lint: $(VENV)/installed
	$(BIN)/ruff check src tests bench docs/*.py docs/generate
	$(BIN)/ruff format --check src tests bench docs/*.py docs/generate

types: $(VENV)/installed
	$(BIN)/mypy
	$(BIN)/mypy docs/generate

test: lint types | $(VENV)/node_modules
	$(PYTEST) --durations=15

test-all: lint types | $(VENV)/node_modules
	$(PYTEST) --durations=30 --full
	$(BIN)/python tests/golden/golden.py check
	$(BIN)/python tests/instruction_sets.py
	$(BIN)/python tests/lowest_versions.py
	$(BIN)/python tests/verdicts.py

check: lint types
	$(PYTEST) -x -m 'not slow' tests/unit

format: $(VENV)/installed
	$(BIN)/ruff format src tests bench docs/*.py docs/generate
	$(BIN)/ruff check --fix src tests bench docs/*.py docs/generate

# Comparison with other libraries; writes tables to bench/results. Options: make bench BENCH=--quick
BENCHES := train_tiny train_base train_lm end_to_end decode decode_length char_lm parts where_time_goes predicted alignments explain linear beside_other_work train_gpt2
bench: $(VENV)/bench-installed
	set -e; for name in $(BENCHES); do $(BIN)/python bench/$$name.py $(BENCH); done

# The service, measured on this machine, which should do nothing else. Options: make bench-serve SERVE="cost stream"
SERVE := all
bench-serve: $(VENV)/bench-installed
	$(BIN)/python bench/serve.py $(SERVE) --write docs/benchmarks/serving.md --json bench/results/serve.json

# Documentation site. The pages of the lab are slow to build, and rebuilt only if the lab has changed.
$(VENV)/docs-installed: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	touch $@

build/gallery-made: $(wildcard src/heedful/lab/*.py src/heedful/lab/*.css src/heedful/lab/*/*.py src/heedful/lab/*.yaml src/heedful/lab/claims/*.yaml) | $(VENV)/installed
	$(BIN)/heedful lab --all --out build/gallery $(LAB)
	touch $@

# The notebooks are run in a folder of their own, which they fill with runs.
build/notebooks-run: $(wildcard docs/notebooks/*.ipynb src/heedful/api/*.py) | $(VENV)/installed
	rm -rf build/notebooks && mkdir -p build/notebooks && cp docs/notebooks/*.ipynb build/notebooks
	$(BIN)/jupyter execute --inplace build/notebooks/*.ipynb
	touch $@

docs: $(VENV)/docs-installed build/gallery-made build/notebooks-run
	$(BIN)/mkdocs build --strict
	@echo 'open site/index.html; with the search: $(BIN)/python -m http.server -d site'

# Pages that follow from the source: settings, error messages, the command, the lectures, the taps.
pages: $(VENV)/installed
	set -e; for name in settings_pages error_pages command_page lectures_page taps_page; do $(BIN)/python docs/generate/$$name.py; done

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache build site
