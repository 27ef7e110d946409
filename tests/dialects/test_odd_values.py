"""Whatever stands where a framework's key or section belongs: a reading, or an error of ours that names the key."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import Any

import pytest

from trimtab import preset
from trimtab.dialects import read
from trimtab.dialects.framework import Dialect, Key
from trimtab.dialects.registry import DIALECTS
from trimtab.dialects.values import nested
from trimtab.dialects.writing.candidates import as_tree
from trimtab.errors import ConfigError, TrimtabError

ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 0.5, 1e308, 5e-324, float("inf"), float("-inf"), float("nan"), 10**400, -(10**400)),
    *(
        "",
        " ",
        "x",
        "null",
        "nan",
        "1e999",
        "0.5",
        "0.5_2.0",
        "_",
        ",",
        "a,b",
        "token",
        "${a.b}",
        "${",
        "\ud800",
        "é" * 3000,
    ),
    *(
        [],
        {},
        [1],
        [0.5, 2.0],
        ["a"],
        [None],
        [[1]],
        [{"a": 1}],
        {"a": 1},
        {"a": None},
        {"a": {"b": [1]}},
        (1, 2),
        b"x",
    ),
)
PLAIN: tuple[Any, ...] = ("decoupled_token_is", 1, 0.5, True, False, [], [1], ["a", "b"], "")
"""What no section can be."""


def _keys() -> Iterator[tuple[Dialect, Key, str]]:
    for dialect in DIALECTS.values():
        for key in dialect.keys:
            for path in key.paths:
                yield dialect, key, path


def _sections() -> list[tuple[str, str]]:
    """Every dotted beginning of every key."""
    paths = [(dialect.name, path.split(".")) for dialect, _, path in _keys()]
    return sorted({(name, ".".join(parts[:count])) for name, parts in paths for count in range(1, len(parts))})


def _is_read_or_refused(framework: str, settings: dict[str, Any], documented: bool) -> str:
    try:
        read(framework, settings, documented)
    except TrimtabError:
        return ""
    except Exception as error:  # what must never come out
        return f"{framework} {settings!r:.80}: {type(error).__name__}: {error}"
    return ""


@pytest.mark.parametrize("documented", [False, True])
def test_any_value_of_any_key_is_read_or_refused_by_an_error_of_ours(documented: bool) -> None:
    faults = [
        fault
        for dialect, _, path in _keys()
        for value in ODD
        if (fault := _is_read_or_refused(dialect.name, as_tree({path: value}), documented))
    ]
    assert not faults, "\n".join(faults[:20])


def _several(seed: int, count: int) -> list[str]:
    """Faults met with two to five keys of one framework set to odd or sound values at once."""
    draw = random.Random(seed)
    faults: list[str] = []
    for _ in range(count):
        dialect = draw.choice(list(DIALECTS.values()))
        chosen = draw.sample(list(dialect.keys), draw.randint(2, min(5, len(dialect.keys))))
        settings: dict[str, Any] = {}
        for key in chosen:
            sound = [key.default, *getattr(key.kind, "names", ())]
            settings[draw.choice(key.paths)] = draw.choice(ODD if draw.random() < 0.4 else sound)
        faults.append(_is_read_or_refused(dialect.name, as_tree(settings), draw.random() < 0.5))
    return [fault for fault in faults if fault]


def test_several_odd_values_at_once_are_read_or_refused_by_an_error_of_ours() -> None:
    faults = _several(0, 6_000)
    assert not faults, "\n".join(faults[:20])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 9))
def test_a_hundred_thousand_odd_settings_are_read_or_refused_by_an_error_of_ours(seed: int) -> None:
    faults = _several(seed, 100_000)
    assert not faults, "\n".join(faults[:20])


@pytest.mark.parametrize(("framework", "section"), _sections())
def test_a_section_that_is_no_mapping_is_refused_by_name(framework: str, section: str) -> None:
    for value in PLAIN:
        with pytest.raises(ConfigError, match=rf"{section.rpartition('.')[2]} needs a section of .*, got "):
            read(framework, as_tree({section: value}))


@pytest.mark.parametrize(("framework", "section"), _sections())
def test_a_section_of_null_reads_as_a_file_without_it(framework: str, section: str) -> None:
    roots = [root for root in DIALECTS[framework].signature.roots if (framework, root) not in _sections()]
    rest = {(roots or ["trainer.rest"])[0]: 1}
    found, without = read(framework, as_tree({section: None, **rest})), read(framework, as_tree(rest))
    assert (found.correction or preset("off")) == (without.correction or preset("off"))
    assert (found.loss, found.advantage) == (without.loss, without.advantage)


def test_a_key_that_holds_a_section_is_refused_by_name() -> None:
    for dialect, key, path in _keys():
        if key.kind is nested:
            continue
        with pytest.raises(ConfigError, match=rf"{path.rpartition('.')[2]} needs .*, got a section with the key 'a'"):
            read(dialect.name, as_tree({path: {"a": 1}}))


def _objections(framework: str, settings: dict[str, Any]) -> list[str]:
    """What is said against these settings, of the whole or of a part."""
    try:
        return [each.text for each in read(framework, settings).refused]
    except ConfigError as error:
        return [str(error)]


def test_null_is_refused_with_the_default_where_the_framework_has_no_such_value() -> None:
    assert "Leave it out to take the default, gae." in _objections("verl", {"algorithm": {"adv_estimator": None}})[0]
    keys = [(dialect, key, path) for dialect, key, path in _keys() if key.default is not None and key.null == "refused"]
    silent: list[str] = []
    for dialect, key, path in keys:
        objections = _objections(dialect.name, as_tree({path: None}))
        words = rf"{key.path} needs .*, got null\. Leave it out to take the default, "
        assert all(re.search(words, each) for each in objections), (dialect.name, path, objections)
        silent += [] if objections or key.part == "other" else [path]  # which by themselves say nothing
    assert len(silent) < len(keys) / 10  # only where, without the rest of a file, no part reads the key


def test_null_means_left_out_where_the_framework_fills_it_in_and_open_where_it_reads_it_so() -> None:
    assert read("ms-swift", {"epsilon": 0.1, "loss_type": None, "beta": None}) == read("ms-swift", {"epsilon": 0.1})
    clip = {"clip_ratio": 0.3, "clip_ratio_low": None, "clip_ratio_high": None}
    loss = read("verl", {"actor_rollout_ref": {"actor": clip}}).loss
    assert loss is not None
    assert (loss.settings()["low"], loss.settings()["high"]) == (0.3, 0.3)  # clip_ratio for both
    rule = read("trl", {"vllm_importance_sampling_mode": "token_mask", "vllm_importance_sampling_clip_max": None})
    assert rule.correction is not None
    assert rule.correction.weight is not None
    assert rule.correction.weight.upper is None


def test_a_section_given_by_reference_or_on_the_command_line_is_read() -> None:
    section = {"rollout_is": "token", "rollout_is_threshold": 3.0}
    expected = read("verl", {"algorithm": {"rollout_correction": section}}).correction
    pointed = {"mine": {"fix": section}, "algorithm": {"rollout_correction": "${mine.fix}"}}
    assert read("verl", pointed).correction == expected
    words = ["algorithm.rollout_correction={rollout_is: token, rollout_is_threshold: 3.0}"]
    assert read("verl", words).correction == expected
    with pytest.raises(ConfigError, match=r"rollout_correction.bypass_mode depends on \$\{gone\}, a reference to what"):
        read("verl", {"algorithm": {"rollout_correction": "${gone}"}})
