PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: env demo test format

env: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[test]'
	touch $@

demo: env
	$(BIN)/autoplan demo

test: env
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest

format: env
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
