# The commands of this repository; `make help` lists them. Each works from a fresh clone.
PY := .venv/bin/python
# pytest keeps what it prepares of each test file beside the file, as Python does.
unexport PYTHONDONTWRITEBYTECODE
export PATH := $(CURDIR)/.venv/bin:$(PATH)
.DEFAULT_GOAL := help
.PHONY: $(shell sed -nE 's/^([a-z0-9-]+):.*/\1/p' $(MAKEFILE_LIST))

help: ## List the commands
	@grep -E '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

venv:
	@python3 devtools/bootstrap.py

demo: venv ## Set up a cluster and train in pods (CLUSTER=local, kind or current; NODES=2 to 4 of local; current needs IMAGE)
	@$(PY) -m devtools.demo $(if $(CLUSTER),--cluster $(CLUSTER)) $(if $(NODES),--nodes $(NODES))

test: lint ## Run all checks, and all tests but the rare ones
	@$(PY) -m pytest -q --numprocesses 4 --dist loadgroup --durations=20 --durations-min=5 \
	  -m "not rare" tests

lint: venv ## Run the static checks: ruff, mypy, imports, pages, generated files, spelling, yamllint, helm lint (root with apt-get: installs a missing shellcheck)
	@$(PY) -m devtools.checks.lint

unit: venv ## Run the tests that need neither a cluster nor an image (ALL=1: also those that take 0.1 s and more)
	@$(PY) -m pytest -q --numprocesses 2 --dist loadgroup tests/unit tests/bench \
	  -m "not fuzz$(if $(ALL),, and not slow)"

fuzz: venv ## Run the fuzz tests with many generated inputs (`make test` runs them with few)
	@$(PY) -m pytest -q tests/unit -m fuzz --hypothesis-profile=many

test-chart: venv ## Run the tests of rendered manifests, some against a real API server (CLUSTER=none: only those without one)
	@$(PY) -m pytest -q tests/chart $(if $(filter none,$(CLUSTER)),-m "not cluster")

test-images: venv ## Run the tests inside the images, which are built first
	@$(PY) -m pytest -q tests/images

test-localkube: venv ## Run the tests that start, break and stop a local cluster
	@$(PY) -m pytest -q tests/localkube

gpu-bundle: venv ## Write what a machine with a GPU and no network needs
	@$(PY) -m devtools.gpus.bundle

test-e2e: venv ## Run the tests that train on a real cluster
	@$(PY) -m pytest -q tests/e2e

test-controllers: venv ## Run the tests with controllers of others, which are built first: Kueue, Flux, Argo CD
	@$(PY) -m pytest -q tests/e2e/test_kueue.py tests/e2e/test_gitops.py

test-older: venv ## Run tests in a cluster of the older Kubernetes, which is built first (TESTS="tests/e2e")
	@LOCALKUBE_NAME=older LOCALKUBE_KUBERNETES=1.34 $(PY) -m pytest -q \
	  $(or $(TESTS),tests/chart/test_real_api.py tests/e2e/test_direct.py tests/e2e/test_commands.py)

test-faults: venv ## Run the tests of faults, also those that `make test` leaves out; prints a table
	@$(PY) -m pytest -q tests/faults

generate: venv ## Write the generated files: values.yaml, schemas and tables of the docs, docker-bake.json
	@$(PY) -m devtools.docs_gen

check-generated: venv
	@$(PY) -m devtools.docs_gen --check

commits: venv ## Check the message of each commit since BASE (default: origin/main), and lint its files
	@$(PY) -m devtools.checks.commits --since "$${BASE:-origin/main}"

schemas: venv ## Download the APIs that the chart is checked against: each Kubernetes release, custom resources
	@$(PY) -m devtools.checks.schemas

docs: venv ## Build the site of the documentation into build/site; a broken link fails
	@$(PY) -m devtools.docs_gen.build_site

release: venv ## Write the packaged chart, the wheel, notes and checksums into dist/ (REPOSITORY=https://...)
	@rm -rf dist
	@$(PY) -m devtools.release build dist \
	  $(if $(REPOSITORY),--repository $(REPOSITORY)) \
	  $(if $(REGISTRY),--registry $(REGISTRY))

release-twice: ## Write the release twice, and fail where two files differ
	@$(MAKE) --no-print-directory release
	@mkdir -p build && cp dist/SHA256SUMS build/first-release
	@$(MAKE) --no-print-directory release
	@diff build/first-release dist/SHA256SUMS

release-wheels: ## Build the wheels that a release has into dist/wheels
	@$(MAKE) --no-print-directory wheels TENSORFLOW="2.21.0 2.20.0 2.19.1 2.18.1"

wheels: venv ## Build Horovod's wheels and its source with the patches into dist/wheels (TENSORFLOW="2.21.0 2.20.0"; default: that of the image cpu)
	@mkdir -p dist/wheels
	@$(PY) -m images sdist dist/wheels
	@cp "$$($(PY) -m images wheel pytorch)" dist/wheels
	@for setting in $(or $(TENSORFLOW:%=--set=tensorflow=%),--set=python=3.11); do \
	  cp "$$($(PY) -m images wheel cpu "$$setting")" dist/wheels || exit; done

goldens: venv ## Render values/*.spec.yaml to the files that the tests compare with
	@for spec in values/*.spec.yaml; do \
	  $(PY) -m hvdchart render "$$spec" -w "$${spec%.spec.yaml}.yaml" || exit; done

format: venv ## Format the Python files with ruff
	@$(PY) -m ruff format . && $(PY) -m ruff check --fix .

lock: venv ## Lock the newest Python packages that requirements/*.in allow
	@cd requirements && for name in dev docs; do \
	  ../$(PY) -m piptools compile -q --upgrade --generate-hashes \
	    --allow-unsafe --strip-extras --no-header \
	    --no-emit-index-url --no-emit-trusted-host --no-emit-find-links \
	    $$name.in -o $$name.txt || exit; done

# Each is tests/bench/bench_NAME.py, with its options in ARGS: `make bench-faults ARGS=--help`.
BENCHES := $(shell sed -nE 's/^(bench-[a-z0-9]+):.*/\1/p' $(MAKEFILE_LIST))
bench-faults: ## Measure start and faults, also of other launchers (ARGS="--only keep,waiting --parts storm")
bench-sizes: ## Measure what fewer and more workers cost, also of torchrun's elastic mode in a TrainJob
bench-training: ## Measure training in pods and without, with a second rank, and with images (ARGS="--only pods")
bench-1000: ## Measure starts of up to 4,000 workers, and launches of up to 512, on nodes that this machine plays
bench-loop: ## Measure the time from a saved script to its first step
$(BENCHES): bench-%: venv
	@$(PY) -m tests.bench.bench_$* $(ARGS)

try-tensorflow: venv ## Test Horovod on a new TensorFlow: VERSION=2.22.0 [KERAS=3.16.0] [PYTHON=3.13]
	@$(PY) -m pytest -q tests/images/test_keras.py -k checks --set tensorflow=$(VERSION) \
	  $(if $(KERAS),--set keras=$(KERAS)) $(if $(PYTHON),--set python=$(PYTHON))
