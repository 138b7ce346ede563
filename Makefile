# The commands of this repository; `make help` lists them. Each works from a fresh clone.
PY := .venv/bin/python
export PATH := $(CURDIR)/.venv/bin:$(PATH)
.DEFAULT_GOAL := help
.PHONY: help venv demo test lint unit chart images lifecycle e2e generate schemas goldens format lock bench try-tensorflow

help: ## list these commands
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

venv:
	@python3 devtools/bootstrap.py

demo: venv ## set everything up and train in pods (CLUSTER=local, kind or current)
	@$(PY) -m devtools.demo $(if $(CLUSTER),--cluster $(CLUSTER))

test: lint ## everything: lint, unit, chart, images, cluster, training
	@$(PY) -m pytest -q --numprocesses 3 --dist loadgroup --durations=20 --durations-min=5 tests

lint: venv ## ruff, mypy, generated files, yamllint, helm lint
	@$(PY) -m devtools.checks.lint

unit: venv ## tests of pure functions
	@$(PY) -m pytest -q tests/unit

chart: venv ## rendered manifests, judged by a real API server
	@$(PY) -m pytest -q tests/chart

images: venv ## tests inside the images
	@$(PY) -m pytest -q tests/images

lifecycle: venv ## starts, breaks and stops a second local cluster
	@$(PY) -m pytest -q tests/localkube

e2e: venv ## training on a real cluster
	@$(PY) -m pytest -q tests/e2e

generate: venv ## write what is generated: values.yaml, schemas, tables in docs
	@$(PY) -m devtools.docs_gen.chart_docs && $(PY) -m devtools.docs_gen.spec_docs && $(PY) -m devtools.docs_gen.image_docs

schemas: venv ## fetch the API of each Kubernetes that the chart is checked against
	@$(PY) -m devtools.checks.kube_schemas

goldens: venv ## render values/*.spec.yaml again
	@$(PY) -m devtools.docs_gen.goldens

format: venv ## let ruff format the Python files
	@$(PY) -m ruff format . && $(PY) -m ruff check --fix .

lock: venv ## lock the newest Python packages that requirements/*.in allow
	@cd requirements && ../$(PY) -m piptools compile -q --upgrade --generate-hashes --allow-unsafe \
	  --strip-extras --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --no-header dev.in -o dev.txt

bench: venv ## figures, not verdicts: start-up, render
	@for file in tests/bench/bench_*.py; do $(PY) -m $$(echo $${file%.py} | tr / .) || exit; done

try-tensorflow: venv ## does Horovod work on a new TensorFlow? VERSION=2.22.0 [KERAS=3.16.0] [PYTHON=3.13]
	@$(PY) -m devtools.trials.try_tensorflow "$(VERSION)" "$(KERAS)" "$(PYTHON)"
