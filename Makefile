# make install: .venv with everything, MindSpore included. demo, test and check call it.
SUPPORTED := (3, 10) <= sys.version_info[:2] <= (3, 12)
# The distribution's Python if it will do: it is built with profile-guided optimisation, with which searches are a tenth faster.
PYTHON ?= $(shell /usr/bin/python3 -c 'import ensurepip, sys; sys.exit(not $(SUPPORTED))' 2>/dev/null \
    && echo /usr/bin/python3 || echo python3)
VENV := .venv
MINDSPORE := 2.10.0
INSTALLED := $(VENV)/.installed
BIN := $(VENV)/bin
PLAN := plan/llama2_7b

PYNATIVE := .venv-pynative

.PHONY: install demo test fast test-pynative matrix pynative check docs clean

install: $(INSTALLED)

# Made once: another Python over an existing one leaves neither. A link to a Python that is gone is none.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(not $(SUPPORTED))' || \
	    { echo "MindSpore $(MINDSPORE) needs Python 3.10 to 3.12: make $(MAKECMDGOALS) PYTHON=python3.11" >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)

$(INSTALLED): setup.py Makefile | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[mindspore,test]' 'mindspore==$(MINDSPORE)'
	touch $@

demo: install
	$(BIN)/symtensor plan llama2_7b --cluster atlas_800t_a2 --device-num 8 --global-batch-size 16 --seq-length 4096 --out $(PLAN)
	$(BIN)/symtensor verify $(PLAN)
	$(BIN)/symtensor prove $(PLAN)

# Two processes; all that MindSpore compiles is in one of them, but for proofs (tests/conftest.py).
test: install
	$(BIN)/python -m pytest -n 2

# A minute: without what MindSpore compiles, plans, commands and proofs.
fast: install
	$(BIN)/python -m pytest -n 2 -m 'not compile and not search and not proof'

# A trace, the mirror of the checks and a proof by MindFormers' own code.
test-pynative: install pynative
	$(BIN)/python -m pytest -m pynative

# What takes longer; what cannot run here says why.
matrix: install
	$(BIN)/python -m pytest -m 'matrix or pynative' -rs

# MindFormers 2.1 beside MindSpore, for `--target mindformers-pynative`: an environment of its own, which nothing else needs.
# The wheel pins MindSpore 2.11 and hyper-parallel, which PyPI does not have; so it comes without what it pins.
pynative: $(PYNATIVE)/.installed

$(PYNATIVE)/.installed: Makefile
	$(PYTHON) -m venv --clear $(PYNATIVE)
	$(PYNATIVE)/bin/python -m pip install --quiet 'mindspore==$(MINDSPORE)' 'numpy<2' 'pyarrow==23.0.1' sentencepiece ftfy regex tqdm \
	    pyyaml jieba rouge_chinese 'mindpet==1.0.4' opencv-python-headless tokenizers astunparse tiktoken jinja2 setproctitle \
	    safetensors tensorboardX deprecated 'transformers>=5.3' 'datasets>=5.0.1'
	$(PYNATIVE)/bin/python -m pip install --quiet --no-deps 'mindformers==2.1.0'
	touch $@

check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The site, in build/site; its tools have an environment of their own, which needs no MindSpore.
docs: build/docs-venv
	NO_MKDOCS_2_WARNING=1 build/docs-venv/bin/python -m mkdocs build --strict --quiet

build/docs-venv: setup.py
	$(PYTHON) -m venv --clear $@
	$@/bin/python -m pip install --quiet --editable '.[docs]'

clean:
	rm -rf $(VENV) $(PYNATIVE) plan build dist *.egg-info
