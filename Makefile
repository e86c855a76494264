# Each target makes what it needs, its virtual environment included. PYTHON picks the interpreter.
PYTHON ?= python3
VENV := .venv
ifeq ($(OS),Windows_NT)
BIN := $(VENV)/Scripts
else
BIN := $(VENV)/bin
endif
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet

.PHONY: demo test lint check clean

demo: $(VENV)/core.stamp  ## set up, tell a story with the model that comes along
	$(BIN)/glassgear run tiny-stories "Once upon a time" --seed 1 --echo --stats

test: $(VENV)/dev.stamp  ## set up and run the tests
	$(BIN)/python -m pytest -n auto --dist loadfile

lint: $(VENV)/dev.stamp  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

check: lint test  ## everything that a change must pass

clean:  ## remove what the other targets made
	rm -rf $(VENV) build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/core.stamp: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing Glassgear into $(VENV) ..."
	$(PIP) --editable .
	@touch $@

$(VENV)/dev.stamp: $(VENV)/core.stamp
	@echo "Installing what the tests need (PyTorch's CPU build among it: some minutes) ..."
	$(PIP) --editable ".[dev]"
	@touch $@
