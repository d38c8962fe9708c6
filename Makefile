# make demo   environment, install, and the main job: train the phrasebook translator, use it, score it
# make test   environment, lint, types, all tests        make check   the quick loop while working
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.PHONY: demo test check lint types format clean

# Made anew when what is to be installed changes. The constraints pin torch's small CPU build.
$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("heedful needs Python 3.11 or newer, this is %d.%d" % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,tensorboard]'
	touch $@

demo: $(VENV)/installed
	$(BIN)/heedful demo

lint: $(VENV)/installed
	$(BIN)/ruff check src tests
	$(BIN)/ruff format --check src tests

types: $(VENV)/installed
	$(BIN)/mypy

test: lint types
	$(BIN)/python -m pytest -n 2 --dist loadfile --durations=15

check: $(VENV)/installed
	$(BIN)/ruff check src tests
	$(BIN)/python -m pytest -n 2 -x -m 'not slow' tests/unit tests/laws

format: $(VENV)/installed
	$(BIN)/ruff format src tests
	$(BIN)/ruff check --fix src tests

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
