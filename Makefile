# Plain make will do, the GNU make 3.81 of macOS included. Needs Python 3.11 or newer, and nothing else.

# Name an interpreter to use it: make test PYTHON=/opt/python/bin/python3.12
PYTHON =
VENV = .venv
# What is measured, and where the figures go: make bench DATA=folder/of/sessions
DATA = build/sessions
RESULTS = benchmarks/results
BIN = $(VENV)/bin
# Frameworks that cannot be installed beside the others.
APART = build/venvs
WHAT = --editable ".[$*]"
# Modules are compiled once, not by each of the many processes that tests start.
export PYTHONDONTWRITEBYTECODE =
$(APART)/runtime/installed: WHAT = --editable ".[redis,sql]" agentscope-runtime==1.0.5.post1 "a2a-sdk<1" filelock pytest-xdist

TESTS = $(BIN)/python -m pytest -n auto --dist worksteal
LATE = -W error::pytest.PytestUnraisableExceptionWarning -W error::pytest.PytestUnhandledThreadExceptionWarning
# Types are checked while tests run, since that takes one core a minute or more, and are told of at the end.
TYPES_BESIDE = @told=$$(mktemp); $(BIN)/mypy >"$$told" 2>&1 & types=$$!;
TYPES_TOLD = status=$$?; wait $$types || status=1; cat "$$told"; rm "$$told"; exit $$status

.PHONY: help demo docs test ci all style lint pyright format bench clients crash durable openapi writers load peers dist extras clean

help:
	@echo "make demo    watch an agent's memory stay within its budget: no key, no network"
	@echo "make test    formatting, lint, types; laws, contracts and all that needs no server, framework or lab"
	@echo "make ci      the same with all of these, and in environments of their own: what CI runs"
	@echo "make all     the same, and every test with all its parameters, and more examples drawn"
	@echo "make lint    formatting, lint and types only"
	@echo "make docs    build the site into build/site; open build/site/index.html"
	@echo "make pyright check the types of the examples with basedpyright as well"
	@echo "make format  mend what formatter and linter can mend"
	@echo "make bench   measure savings, losses, overhead and scale; writes $(RESULTS)"
	@echo "make clients run Codex, Claude Code, opencode, SDKs and frameworks through the gateway; installs them; writes $(RESULTS)"
	@echo "make crash   kill processes and servers, at most 30 minutes for each backend; goes on where it stopped"
	@echo "make durable measure durable memories beside AgentScope's; writes $(RESULTS)"
	@echo "make writers many processes write into one session, in every database, with kills and pauses; takes hours"
	@echo "make openapi ask the gateway what its OpenAPI document says, two hundred times"
	@echo "make load    put a gateway under load for five minutes, and kill its workers in events"
	@echo "make peers   install the libraries to measure beside this one, each on its own"
	@echo "make dist    build the wheel and the source distribution into dist"
	@echo "make extras  try the wheel with each extra alone, on every Python, with lowest and newest dependencies; takes long"
	@echo "make clean   remove $(VENV) and caches"

demo: $(VENV)/installed
	@$(BIN)/context-compressor demo

test: style
	$(TYPES_BESIDE) $(TESTS) --own; $(TYPES_TOLD)

# Without AgentScope 2 its tests are skipped, and say so, save in continuous integration.
ci: style
	$(TYPES_BESIDE) $(MAKE) --no-print-directory $(APART)/agentscope2/installed; $(TESTS); $(TYPES_TOLD)

# Without ReMe, if it cannot be installed, the tests that run it are skipped, and say so.
all: lint
	@$(MAKE) --no-print-directory $(APART)/agentscope2/installed $(APART)/runtime/installed
	@$(BIN)/python benchmarks/peers/make.py reme
	$(TESTS) --all --hypothesis-profile explore $(LATE)
	$(APART)/runtime/bin/python -m pytest -p no:cacheprovider tests/services/test_services.py

style: $(VENV)/installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

lint: style
	$(BIN)/mypy

docs: $(VENV)/installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

pyright: $(VENV)/installed-dev
	$(BIN)/python -m pip install --quiet basedpyright
	$(BIN)/basedpyright --level error

format: $(VENV)/installed-dev
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

bench: $(VENV)/installed-report
	@test "$(DATA)" != build/sessions || $(BIN)/python -m benchmarks.sessions $(DATA)
	$(BIN)/python benchmarks/savings.py --data "$(DATA)" --budget 16000 32000 \
	    --system raw sliding masking ours --jobs 2 --results $(RESULTS)
	$(BIN)/python benchmarks/overhead.py --results $(RESULTS)
	$(BIN)/python benchmarks/canaries.py
	$(BIN)/python benchmarks/mutations.py
	$(BIN)/python benchmarks/transcripts.py --count 2000
	$(BIN)/python benchmarks/robustness.py --case "single line"
	$(BIN)/python benchmarks/robustness.py --case "endless pattern"
	$(BIN)/python benchmarks/scale.py --results $(RESULTS)
	$(BIN)/python benchmarks/search.py --data "$(DATA)" --results $(RESULTS)
	$(BIN)/python benchmarks/retention.py --sessions 1000
	-$(BIN)/python benchmarks/background.py --data "$(DATA)" --results $(RESULTS)

# With names, some of them, and nothing is written: make clients CLIENTS="codex opencode-chat"
CLIENTS =
clients: $(VENV)/installed-dev
	$(BIN)/python -m benchmarks.clients $(if $(CLIENTS),$(CLIENTS),--results $(RESULTS))

crash: $(VENV)/installed-dev
	PYTHONPATH=. $(BIN)/python benchmarks/crash.py --results $(RESULTS)

durable: $(VENV)/installed-dev
	PYTHONPATH=. $(BIN)/python benchmarks/durable.py --results $(RESULTS)

openapi: $(VENV)/installed-dev
	OPENAPI_EXAMPLES=200 $(BIN)/python -m pytest -n 0 --timeout 3600 tests/gateway/test_openapi.py

load: $(VENV)/installed-dev
	$(BIN)/python benchmarks/gateway.py --results $(RESULTS)
	$(BIN)/python benchmarks/gateway.py --faults

# Redis and SQLite first: they have the most runs.
writers: $(VENV)/installed-dev
	$(BIN)/python benchmarks/writers.py --backend sqlite redis --runs 101 --faults 8
	$(BIN)/python benchmarks/writers.py --backend postgres mariadb --runs 21 --faults 8
	$(BIN)/python benchmarks/writers.py --sessions 1000 --messages 20

peers: $(VENV)/installed
	@$(BIN)/python benchmarks/peers/make.py

dist: $(VENV)/installed-dev
	rm -rf dist
	$(BIN)/python -m hatchling build -d dist

# What was tried with this wheel is not tried again.
extras: dist
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/python -m tests.extras dist/*.whl

# The stamps are written last, so that an installation that broke off is taken up again. Modules are compiled
# when they are first imported: most never are, and compiling all takes as long as fetching them.
$(VENV)/installed: pyproject.toml
	@python=""; \
	for candidate in "$(PYTHON)" python3.13 python3.12 python3.11 python3; do \
	    test -n "$$candidate" || continue; \
	    if "$$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' \
	        >/dev/null 2>&1; then python="$$candidate"; break; fi; \
	    if test -n "$(PYTHON)"; then break; fi; \
	done; \
	if test -z "$$python"; then \
	    echo "No Python 3.11 or newer with its venv module was found$(PYTHON:%= at %)." >&2; \
	    echo "Debian, Ubuntu: apt install python3 python3-venv. macOS: brew install python@3.13." >&2; \
	    echo "If it has another name: make PYTHON=/path/to/python3" >&2; \
	    exit 1; \
	fi; \
	if ! $(BIN)/python -m pip --version >/dev/null 2>&1; then \
	    echo "Creating $(VENV) with $$($$python --version)" && "$$python" -m venv --clear $(VENV); \
	fi
	@echo "Installing what the library needs into $(VENV); the first time this may take a minute or two"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	@$(BIN)/python -m pip install --quiet --no-compile --editable .
	@touch $@

$(VENV)/installed-dev: $(VENV)/installed
	@echo "Installing what development needs into $(VENV)"
	@$(BIN)/python -m pip install --quiet --no-compile --group dev
	@touch $@

$(APART)/%/installed: pyproject.toml
	@echo "Installing what the tests of $* need into $(APART)/$*"
	@$(BIN)/python -m venv --clear --without-pip $(APART)/$*
	@$(BIN)/python -m pip --python $(APART)/$*/bin/python install --quiet --disable-pip-version-check \
	    --no-compile $(WHAT) --group apart
	@touch $@

$(VENV)/installed-report: $(VENV)/installed
	@echo "Installing what pictures need into $(VENV)"
	@$(BIN)/python -m pip install --quiet --editable ".[report]" || \
	    echo "That failed; there will be figures, but no pictures." >&2
	@touch $@

clean:
	rm -rf $(VENV) .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
