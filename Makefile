# `make demo` shows everything on a small scale; `make test` checks everything but what takes long. Both are safe to repeat.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LOWEST := .venv-lowest
TWO := -n 2 --dist worksteal  # two processes, and neither waits for the other at the end
EXTRAS := export,photos,serve,search,ray,slurm
OLD_PYTHON := fscl needs Python 3.11 or newer, but '$(PYTHON)' is older or missing. Install one, or name it: make PYTHON=python3.12 demo

NO_VENV := '$(PYTHON)' cannot make a virtual environment; on Debian and Ubuntu: apt install python3-venv

.PHONY: demo test test-slow test-lowest docs mutants soak fuzz clean

demo: $(VENV)/.installed
	$(BIN)/fscl demo

test: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/bandit --quiet --recursive --severity-level medium --configfile pyproject.toml fscl tools benchmarks docs/tools
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest $(TWO) -m "not slow" $(PYTEST_ARGS)

# Whole runs, killed processes, golden results: about as long again.
test-slow: $(VENV)/.installed-dev
	$(BIN)/python -m pytest $(TWO) -m slow $(PYTEST_ARGS)

# The site, in build/site: open build/site/index.html. Nothing is fetched.
docs: $(VENV)/.installed-dev
	PYTHONPATH=. $(BIN)/python -m docs.tools.site
	PYTHONPATH=. $(BIN)/zensical build --strict --clean

# Edits of the source that the tests must notice; lists those that survive.
mutants: $(VENV)/.installed-dev
	$(BIN)/python tools/mutants.py

# Kills processes that change models and runs, cuts their power, fills their disk, and compares what is left with twins;
# the same command goes on after a stop.
MINUTES ?= 120
SOAK ?= /tmp/fscl-soak
soak: $(VENV)/.installed-dev
	PYTHONPATH=. $(BIN)/python -m tools.soak --minutes $(MINUTES) --folder $(SOAK)

# Gives damaged bytes to every parser of bytes from outside, guided by coverage.
FUZZ ?= /tmp/fscl-fuzz
fuzz: $(VENV)/.installed-fuzz
	PYTHONPATH=. $(BIN)/python -m tools.fuzz --minutes $(MINUTES) --folder $(FUZZ)

# The lower bounds in pyproject.toml are true: the quick tests pass with exactly the lowest versions (torch aside).
test-lowest: $(LOWEST)/.installed
	$(LOWEST)/bin/python -m pytest $(TWO) -m "not slow" -p no:cacheprovider $(PYTEST_ARGS)

clean:
	rm -rf $(VENV) $(LOWEST)

# A stamp file says what was installed, so that a second run installs nothing.
$(VENV)/bin/python $(LOWEST)/bin/python: %/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { echo "$(OLD_PYTHON)" >&2; exit 1; }
	@$(PYTHON) -m venv $* || { rm -rf $*; echo "$(NO_VENV)" >&2; exit 1; }

$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'pip>=25.1'  # the first that knows groups
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(EXTRAS)]' --group dev
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-fuzz: $(VENV)/.installed-dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --group fuzz
	@touch $@

$(LOWEST)/.installed: pyproject.toml constraints.txt tools/lowest.py | $(LOWEST)/bin/python
	$(LOWEST)/bin/python tools/lowest.py $(EXTRAS) dev > $(LOWEST)/lowest.txt
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check -r $(LOWEST)/lowest.txt -e '.[$(EXTRAS)]'
	@touch $@
