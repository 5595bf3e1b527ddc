# `make demo` and `make test` are all the set-up there is: each makes .venv when it is missing
# or older than pyproject.toml. Needs Python >= 3.11, git and make.
#
#   make test ARGS='-k swap'      ARGS is handed on by all but lint and clean
#   make test PYTHON=python3.12   another interpreter for a new .venv

PYTHON ?= python3
ARGS ?=
READY := .venv/.ready

.DEFAULT_GOAL := help
.PHONY: help demo test lint bench crash soak screenshots clean

help:
	@echo 'make demo         start the console on a spool made for the occasion'
	@echo 'make test         run the tests            (ARGS="-k word" picks some)'
	@echo 'make lint         ruff and mypy'
	@echo 'make bench        measure engine and console'
	@echo 'make crash        kill and fail commands and plans at every system call (needs strace)'
	@echo 'make soak         rivals on one spool, killed at random (ARGS="--minutes 10")'
	@echo 'make screenshots  draw screenshots/ anew'
	@echo 'make clean        remove .venv, caches and build output'

demo: $(READY)
	@.venv/bin/spooldeck demo $(ARGS)

test: $(READY)
	@.venv/bin/python -m pytest $(ARGS)

lint: $(READY)
	@.venv/bin/python -m ruff check .
	@.venv/bin/python -m ruff format --check .
	@.venv/bin/python -m mypy

bench: $(READY)
	@.venv/bin/python tests/bench/bench.py $(ARGS)

crash: $(READY)
	@.venv/bin/python tests/crash/crash.py $(ARGS)
	@.venv/bin/python -m tests.crash.deeds $(ARGS)

soak: $(READY)
	@.venv/bin/python tests/rivals/soak.py $(ARGS)

screenshots: $(READY)
	@.venv/bin/python tests/tui/screenshots.py $(ARGS)

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis dist build *.egg-info
	find engine tui themes tests -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamp goes first and comes back last, so an install cut short never looks finished.
# A .venv is made by uv, else by venv with ensurepip, else bare and filled from outside by pip.
define SETUP
say() { echo "spooldeck: $$*" >&2; }
has() { "$$1" -c "import $$2" >/dev/null 2>&1; }
new_enough() { "$$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }
py='$(PYTHON)' venv=.venv/bin/python

rm -f $(READY)
if new_enough $$venv; then fresh=; else fresh=yes; rm -rf .venv; fi

if command -v uv >/dev/null 2>&1; then
    say 'setting up .venv with uv'
    if new_enough "$$py"; then want="$$py"; else want='>=3.11'; fi
    if [ $$fresh ]; then uv venv -q --python "$$want" .venv; fi
    uv pip install -q --python $$venv -e '.[dev]'
else
    if ! new_enough "$$py"; then
        say "Python 3.11 or newer is needed and $$py is not: make PYTHON=/path/to/python3.11"
        exit 1
    fi
    if has "$$py" venv && has "$$py" ensurepip; then
        say 'setting up .venv with venv and pip'
        if ! has $$venv pip; then "$$py" -m venv --clear .venv; fi
        pip="$$venv -m pip"
    elif has "$$py" venv && has "$$py" pip; then
        say 'setting up .venv with pip from outside (there is no ensurepip)'
        if [ $$fresh ]; then "$$py" -m venv --without-pip .venv; fi
        pip="$$py -m pip --python $$venv"
    else
        say "$$py can make no virtual environment: install the Debian package python3-venv (or python3-pip), or uv"
        exit 1
    fi
    $$pip install -q --no-input --disable-pip-version-check -e '.[dev]'
fi
touch $(READY)
endef
export SETUP

$(READY): pyproject.toml
	@sh -euc "$$SETUP"
