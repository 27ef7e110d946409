"""What `import trimtab` offers, and what it costs."""

import ast
import importlib
import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

import trimtab

PUBLIC = {
    "Advantages",
    "Aspo",
    "Bapo",
    "Cispo",
    "Clip",
    "ClipCov",
    "Corrected",
    "Correction",
    "Denominator",
    "Distillation",
    "DppoKl",
    "DppoTv",
    "Dro",
    "EntropyBonus",
    "Fipo",
    "Gae",
    "Gate",
    "Gdpo",
    "Gmpo",
    "Gpg",
    "Grpo",
    "Gspo",
    "Head",
    "HeadLogProbs",
    "ImportancePg",
    "KlCov",
    "KlPenalty",
    "LeaveOneOut",
    "Limit",
    "Luspo",
    "MaxRl",
    "Normalise",
    "Opo",
    "OptimalToken",
    "Overlong",
    "PassK",
    "PolicyLoss",
    "ReMax",
    "Recorder",
    "Reduction",
    "Reinforce",
    "ReinforcePlusPlus",
    "Rloo",
    "Sapo",
    "SelectedLogProbs",
    "Shaped",
    "Shaping",
    "Staleness",
    "Topr",
    "TrimtabError",
    "Vespo",
    "Weight",
    "__version__",
    "advantages",
    "checking",
    "correct",
    "ended",
    "kl_penalty",
    "log_probs_of",
    "normalised",
    "policy_loss",
    "preset",
    "selected_log_probs",
    "shaped",
    "staleness",
}


def test_all_is_exact():
    assert set(trimtab.__all__) == PUBLIC
    assert len(trimtab.__all__) == len(PUBLIC)
    assert trimtab.__all__ == sorted(trimtab.__all__)
    assert dir(trimtab) == trimtab.__all__


def test_every_public_name_loads_from_the_module_where_type_checkers_see_it():
    tree = ast.parse(Path(trimtab.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {
        alias.asname: node.module for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert seen.keys() | {"__version__"} == PUBLIC
    for name, module in seen.items():
        assert module is not None
        assert getattr(trimtab, name) is getattr(importlib.import_module(module), name)
        assert trimtab._HOMES[name] == module


def test_a_name_that_does_not_exist_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'trimtab' has no attribute 'corect'"):
        trimtab.corect  # noqa: B018


def test_the_version_is_the_one_of_the_distribution():
    assert trimtab.__version__ == importlib.metadata.version("trimtab")


@pytest.mark.parametrize(
    "module", ["trimtab", "trimtab.config", "trimtab.config.files", "trimtab.cli", "trimtab.cli.app"]
)
def test_importing_a_torch_free_module_leaves_torch_unimported(module):
    heavy = "torch", "jaxtyping", "numpy"
    code = f"import sys, {module}; print([name for name in {heavy} if name in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_the_core_does_import_torch_so_the_test_above_can_fail():
    code = "import sys, trimtab; trimtab.correct; print('torch' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "True"
