# Each target makes or updates .venv when it is missing or older than pyproject.toml or the lock file
# in .ci/lock that the target needs: run.txt for `make demo`, test.txt for `make test`. It has exact
# versions and hashes. Needs Python >= 3.11, git, make and a package index: PyPI, or
# that of your settings of pip or uv.
#
#   make test ARGS='-k swap'      ARGS is passed on by all targets but lint and clean
#   make test PYTHON=python3.12   another interpreter for a new .venv

PYTHON ?= python3
ARGS ?=
RUN := .venv/.ready
DEV := .venv/.ready-dev
# Paths of tests stay short: a socket's path has at most 107 bytes.
PYTEST = temporary=$$(mktemp -d /tmp/sd.XXXX); trap 'rm -rf "$$temporary"' EXIT; \
	.venv/bin/python -m pytest --basetemp="$$temporary/t"

# Tests wait for disks and for other processes a third of their time. A process that has run its
# tests takes some of another one's, so that none ends long after the others.
WORKERS = $(shell expr 2 \* $$(nproc)) --dist worksteal

# Without bytecode files each start of the command takes twice the time.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-all deep lint bench crash soak screenshots dist wheel deb lock clean

help:
	@echo 'make demo         start the console on a temporary queue   (ARGS=--redis, --federation)'
	@echo 'make test         the quick tests, in parallel    (ARGS="-k word" picks some)'
	@echo 'make test-all     all tests, in parallel'
	@echo 'make deep         planted faults, every crash point, fuzz, soak, long property tests'
	@echo 'make lint         ruff and mypy'
	@echo 'make bench        measure each target beside floors and peers (ARGS=--quick, --list, --write)'
	@echo 'make crash        kill and fail the commands at every system call (needs strace)'
	@echo 'make soak         rivals on one spool, killed at random (ARGS="--minutes 10")'
	@echo 'make screenshots  draw screenshots/ again, and record the cast'
	@echo 'make dist         build wheel, source archive, pages, completion and Debian package into dist/'
	@echo 'make deb          build the Debian package into dist/ (needs debhelper)'
	@echo 'make lock         renew .ci/lock: the newest versions that pyproject.toml allows'
	@echo 'make clean        remove .venv, caches and build output'

demo: $(if $(findstring --redis,$(ARGS))$(findstring --federation,$(ARGS)),.venv/.ready-demo,$(RUN))
	@.venv/bin/spooldeck demo $(ARGS)

test: .venv/.ready-test
	@export SPOOLDECK_EXAMPLES="$${SPOOLDECK_EXAMPLES:-0.2}"; $(PYTEST) -n $(WORKERS) $(ARGS)

test-all: $(DEV)
	@$(PYTEST) -n $(WORKERS) --deep $(ARGS)

deep: $(DEV)
	@export SPOOLDECK_EXAMPLES=10; $(PYTEST) -n $(WORKERS) --deep $(ARGS)
	@.venv/bin/python tests/bugs/plant.py
	@.venv/bin/python tests/crash/crash.py
	@.venv/bin/python tests/rivals/fuzz.py
	@.venv/bin/python tests/rivals/soak.py --minutes 10

lint: $(DEV)
	@.venv/bin/python -m ruff check .
	@.venv/bin/python -m ruff format --check .
	@.venv/bin/python -m mypy

bench: .venv/.ready-bench
	@.venv/bin/python tests/bench/bench.py $(ARGS)

crash: $(DEV)
	@.venv/bin/python tests/crash/crash.py $(ARGS)

soak: $(DEV)
	@.venv/bin/python tests/rivals/soak.py $(ARGS)

screenshots: $(DEV)
	@.venv/bin/python tests/tui/screenshots.py $(ARGS)
	@.venv/bin/python tests/tui/record_cast.py
	@.venv/bin/python -m tests.tui.draw_cast

# The day of the last commit is on the pages and in the archives: the same commit, the same files.
dist deb: export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct)

dist: wheel deb
	@.venv/bin/python -m tui.packaging.share_files dist
	@.venv/bin/python -m twine check --strict dist/*.whl dist/*.tar.gz

wheel: .venv/.ready-package
	@rm -rf dist
	@.venv/bin/python -m build --no-isolation

deb: wheel
	@.venv/bin/python -m tui.packaging.debian dist

lock: .venv/.ready-package
	@.venv/bin/python -m tui.packaging.locks

clean:
	rm -rf .venv .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis dist build *.egg-info
	find engine tui themes tests -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamp goes first and comes back last, so an install cut short never looks finished.
# A .venv is made by uv, else by venv with ensurepip, else bare and filled from outside by pip.
define SETUP
say() { echo "spooldeck: $$*" >&2; }
has() { "$$1" -c "import $$2" >/dev/null 2>&1; }
new_enough() { "$$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }
py='$(PYTHON)' venv=.venv/bin/python

rm -f "$$STAMP"
if new_enough $$venv; then fresh=; else fresh=yes; rm -rf .venv; fi

if command -v uv >/dev/null 2>&1; then
    say 'setting up .venv with uv: a minute or two the first time'
    if new_enough "$$py"; then want="$$py"; else want='>=3.11'; fi
    if [ $$fresh ]; then uv venv -q --python "$$want" .venv; fi
    install="uv pip install --python $$venv"
else
    if ! new_enough "$$py"; then
        say "Python 3.11 or newer is needed and $$py is not: make PYTHON=/path/to/python3.11"
        exit 1
    fi
    if has "$$py" venv && has "$$py" ensurepip; then
        say 'setting up .venv with venv and pip: a minute or two the first time'
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
    install="$$pip install --no-input --no-compile --disable-pip-version-check"
fi
$$install --require-hashes -r .ci/lock/build.txt -r "$$LOCK"
$$install --no-deps --no-build-isolation -e .
touch "$$STAMP"
endef
export SETUP

$(RUN): pyproject.toml .ci/lock/run.txt
	@STAMP=$@ LOCK=.ci/lock/run.txt sh -euc "$$SETUP"

.venv/.ready-%: pyproject.toml .ci/lock/%.txt
	@STAMP=$@ LOCK=.ci/lock/$*.txt sh -euc "$$SETUP"
	@touch $(RUN)
