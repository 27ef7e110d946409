"""Python scripts with branches, loops and functions: what every way through them agrees on is read, the rest is not guessed."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from trimtab.dialects import read
from trimtab.dialects.sources.opening import contents_of
from trimtab.dialects.sources.python_flow import MOST_WORK
from trimtab.dialects.sources.unknown import Unknown
from trimtab.errors import ConfigFileError

HEAD = "import os\nfrom trl import GRPOConfig, GRPOTrainer\n\n"
TRAIN = "GRPOTrainer(model='m', args=config).train()\n"
BRANCHES = "which branches of the script set differently"
LOOP = "which a loop of the script changes"


def keys_of(folder: Path, body: str) -> dict[str, object]:
    file = folder / "run.py"
    file.write_text(HEAD + body)
    return contents_of(file).keys


def why(value: object) -> str:
    assert isinstance(value, Unknown)
    return value.why


# ── the two that were read wrongly ──


def test_a_name_that_two_branches_set_differently_is_not_known(tmp_path: Path) -> None:
    file = tmp_path / "run.py"
    file.write_text(
        HEAD + "if os.path.exists('x'):\n    eps = 0.2\nelse:\n    eps = 0.4\nGRPOConfig(epsilon=eps, beta=0.1)\n"
    )
    found = read("trl", file)
    assert [each.text for each in found.refused] == [
        f"TRL: epsilon depends on eps (line 4), {BRANCHES}. Pass --set epsilon=VALUE."
    ]
    assert found.loss is None


def test_two_calls_in_different_branches_never_become_one(tmp_path: Path) -> None:
    body = (
        "if os.path.exists('x'):\n"
        "    config = GRPOConfig(loss_type='cispo', epsilon_high=5.0, beta=0.1, num_generations=8)\n"
        "else:\n"
        "    config = GRPOConfig(loss_type='dapo', epsilon=0.1, beta=0.1, num_generations=8)\n"
    )
    for end in (TRAIN, ""):
        found = keys_of(tmp_path, body + end)
        assert {key: why(found[key]) for key in ("loss_type", "epsilon_high", "epsilon")} == dict.fromkeys(
            ("loss_type", "epsilon_high", "epsilon"), BRANCHES
        )
        assert (found["beta"], found["num_generations"]) == (0.1, 8)
    assert [each.part for each in read("trl", tmp_path / "run.py").refused] == ["loss"]


# ── branches ──

KNOWN = {
    "agreement": ("if u():\n    e = 0.3\nelse:\n    e = 0.3\n", 0.3),
    "a test that is known": ("MODE = 'a'\nif MODE == 'a':\n    e = 0.3\nelse:\n    e = 0.4\n", 0.3),
    "a later elif that is known": ("MODE = 'b'\nif MODE == 'a':\n    e = 0.4\nelif MODE == 'b':\n    e = 0.3\nelse:\n    e = 0.5\n", 0.3),
    "a way that leaves": ("e = 0.3\nif u():\n    e = 0.4\n    raise SystemExit\n", 0.3),
    "a way that exits": ("import sys\ne = 0.3\nif u():\n    e = 0.4\n    sys.exit(1)\n", 0.3),
    "a name that no other way binds": ("if u():\n    e = 0.3\nelse:\n    raise ValueError\n", 0.3),
    "a default of an import": ("try:\n    e = 0.3\nexcept ImportError:\n    e = 0.3\n", 0.3),
    "the main block": ("e = 0.4\nif __name__ == '__main__':\n    e = 0.3\n", 0.3),
    "types alone": ("from typing import TYPE_CHECKING\ne = 0.3\nif TYPE_CHECKING:\n    e = 0.4\n", 0.3),
    "with": ("with open('x') as f:\n    e = 0.3\n", 0.3),
    "a match that is known": (
        "m = 'a'\nmatch m:\n    case 'b':\n        e = 0.4\n"
        "    case 'a' | 'c':\n        e = 0.3\n    case _:\n        e = 0.5\n", 0.3),
    "a loop of one": ("for e in [0.3]:\n    pass\n", 0.3),
    "a loop of none": ("e = 0.3\nfor x in []:\n    e = 0.4\n", 0.3),
    "a loop that sets the same": ("e = 0.3\nwhile u():\n    e = 0.3\n", 0.3),
    "a function's own name": ("e = 0.3\ndef f():\n    e = 0.4\nf()\n", 0.3),
    "a function that is not called": ("e = 0.3\ndef f():\n    e = 0.4\n", 0.3),
    "a parameter": ("e = 0.4\ndef f(e):\n    return e\ne = f(0.3)\n", 0.3),
    "a parameter by name": ("def f(*, a, b=2):\n    return a\ne = f(a=0.3)\n", 0.3),
    "a default of a parameter": ("def f(a, b=0.3):\n    return b\ne = f(1)\n", 0.3),
    "an early return": ("def f(x):\n    if x == 'a':\n        return 0.3\n    return 0.4\ne = f('a')\n", 0.3),
    "a global": ("e = 0.4\ndef f():\n    global e\n    e = 0.3\nf()\n", 0.3),
    "a name in a comprehension": ("e = 0.3\nx = [e for e in u()]\n", 0.3),
    "the walrus": ("if (e := 0.3) > 0:\n    pass\n", 0.3),
    "several targets": ("a = e = 0.3\n", 0.3),
    "an unpacked pair": ("a, e = 1, 0.3\n", 0.3),
    "a mapping that is updated": ("d = {'e': 0.4}\nd.update(e=0.3)\ne = d['e']\n", 0.3),
    "a mapping under two names": ("d = {'e': 0.4}\nb = d\nb['e'] = 0.3\ne = d['e']\n", 0.3),
    "a copied mapping": ("d = {'e': 0.3}\nb = d.copy()\nb['e'] = 0.4\ne = d['e']\n", 0.3),
    "a method's branch of a class": ("class A:\n    e = 0.4\ne = 0.3\n", 0.3),
}  # fmt: skip


@pytest.mark.parametrize("name", KNOWN)
def test_what_every_way_agrees_on_is_read(tmp_path: Path, name: str) -> None:
    body, value = KNOWN[name]
    assert keys_of(tmp_path, f"{body}GRPOConfig(epsilon=e, beta=0.1)\n")["epsilon"] == value


OPEN = {
    "if alone": ("e = 0.2\nif u():\n    e = 0.4\n", BRANCHES),
    "elif": ("if u():\n    e = 0.2\nelif v():\n    e = 0.2\nelse:\n    e = 0.4\n", BRANCHES),
    "one within another": ("e = 0.2\nif u():\n    if v():\n        e = 0.4\n", BRANCHES),
    "a ternary": ("e = 0.2 if u() else 0.4\n", "of which the file does not say which holds"),
    "try": ("try:\n    e = 0.2\nexcept ValueError:\n    e = 0.4\n", BRANCHES),
    "try that may stop before": ("e = 0.2\ntry:\n    e = 0.4\nexcept ValueError:\n    pass\n", BRANCHES),
    "try with else": ("e = 0.2\ntry:\n    u()\nexcept ValueError:\n    pass\nelse:\n    e = 0.4\n", BRANCHES),
    "raised half-way": (
        "e = 0.2\ntry:\n    if u():\n        e = 0.4\n        raise ValueError\n    e = 0.2\n"
        "except ValueError:\n    pass\n",
        BRANCHES,
    ),
    "suppress": ("import contextlib\ne = 0.2\nwith contextlib.suppress(OSError):\n    e = 0.4\n", BRANCHES),
    "match": ("match u():\n    case 1:\n        e = 0.2\n    case _:\n        e = 0.4\n", BRANCHES),
    "match without a last case": ("e = 0.2\nmatch u():\n    case 1:\n        e = 0.4\n", BRANCHES),
    "for": ("e = 0.2\nfor x in u():\n    e = 0.4\n", LOOP),
    "the variable of a loop": ("for e in (0.2, 0.4):\n    pass\n", LOOP),
    "while": ("e = 0.2\nwhile u():\n    e = 0.4\n", LOOP),
    "break": ("e = 0.2\nfor x in u():\n    if v():\n        e = 0.4\n        break\n", LOOP),
    "continue": ("e = 0.2\nfor x in u():\n    if v():\n        e = 0.4\n        continue\n    e = 0.2\n", LOOP),
    "a name that grows": ("e = 0.2\nfor x in u():\n    e *= 2\n", LOOP),
    "early return": ("def f():\n    if u():\n        return 0.2\n    return 0.4\ne = f()\n", BRANCHES),
    "a function chosen in a branch": (
        "if u():\n    def f():\n        return 0.2\nelse:\n    def f():\n        return 0.4\ne = f()\n", None
    ),
    "a parameter that is not given": ("e = 0.2\ndef f(e):\n    return e\ne = f(u())\n", None),
    "an import of the name": ("e = 0.2\nfrom other import e\n", None),
    "an item of a mapping in a branch": ("d = {'e': 0.2}\nif u():\n    d['e'] = 0.4\ne = d['e']\n", BRANCHES),
    "unpacked from a call": ("e = 0.2\ne, x = u()\n", None),
    "bound by with": ("e = 0.2\nwith u() as e:\n    pass\n", None),
}  # fmt: skip


@pytest.mark.parametrize("name", OPEN)
def test_what_ways_set_differently_is_unknown_with_its_reason(tmp_path: Path, name: str) -> None:
    body, reason = OPEN[name]
    found = keys_of(tmp_path, f"{body}GRPOConfig(epsilon=e, beta=0.1)\n")
    assert why(found["epsilon"]) == reason or reason is None
    assert found["beta"] == 0.1


# ── objects of settings ──


def test_of_two_objects_the_one_that_a_trainer_is_given_counts(tmp_path: Path) -> None:
    two = "config = GRPOConfig(epsilon=0.2, beta=0.1)\nother = GRPOConfig(epsilon=0.4, loss_type='dapo')\n"
    found = keys_of(tmp_path, two + TRAIN)
    assert (found["epsilon"], found["beta"], "loss_type" in found) == (0.2, 0.1, False)
    assert keys_of(tmp_path, two + TRAIN.replace("config", "other"))["epsilon"] == 0.4


def test_of_two_objects_of_which_none_is_seen_to_count_both_lines_are_named(tmp_path: Path) -> None:
    file = tmp_path / "run.py"
    file.write_text(
        HEAD + "a = GRPOConfig(epsilon=0.2, beta=0.1)\nb = GRPOConfig(epsilon=0.4, beta=0.1)\ntrain(pick(a, b))\n"
    )
    assert [each.text for each in read("trl", file).refused] == [
        "TRL: epsilon depends on GRPOConfig(epsilon=…) (line 4), which lines 4, 5 set differently. Pass --set epsilon=VALUE."
    ]
    assert contents_of(file).keys["beta"] == 0.1


def test_two_objects_that_are_both_trained_are_not_mixed(tmp_path: Path) -> None:
    body = "for e in (0.2, 0.4):\n    config = GRPOConfig(epsilon=e, beta=0.1)\n    GRPOTrainer(args=config)\n"
    assert why(keys_of(tmp_path, body)["epsilon"]) == LOOP
    both = "GRPOTrainer(args=GRPOConfig(epsilon=0.2))\nGRPOTrainer(args=GRPOConfig(epsilon=0.4, beta=0.1))\n"
    found = keys_of(tmp_path, both)
    assert {why(found["epsilon"]), why(found["beta"])} == {"which lines 4, 5 set differently"}


def test_a_call_that_only_one_branch_makes_is_the_one_that_is_trained(tmp_path: Path) -> None:
    found = keys_of(tmp_path, f"config = None\nif u():\n    config = GRPOConfig(epsilon=0.2)\n    {TRAIN}")
    assert found["epsilon"] == 0.2


def test_a_setting_assigned_in_one_branch_is_unknown(tmp_path: Path) -> None:
    found = keys_of(
        tmp_path,
        f"config = GRPOConfig(epsilon=0.2, beta=0.1)\nif u():\n    config.epsilon = 0.4\n    config.loss_type = 'dapo'\n{TRAIN}",
    )
    assert {why(found["epsilon"]), why(found["loss_type"])} == {BRANCHES}
    assert found["beta"] == 0.1


def test_an_object_replaced_in_a_branch_is_either(tmp_path: Path) -> None:
    body = (
        f"config = GRPOConfig(epsilon=0.2, beta=0.1)\nif u():\n    config = GRPOConfig(epsilon=0.4, beta=0.1)\n{TRAIN}"
    )
    found = keys_of(tmp_path, body)
    assert (why(found["epsilon"]), found["beta"]) == (BRANCHES, 0.1)


def test_a_function_called_once_makes_its_object_with_what_it_is_given(tmp_path: Path) -> None:
    make = "def make(eps, *, beta=0.1):\n    return GRPOConfig(epsilon=eps, beta=beta)\n\n"
    assert keys_of(tmp_path, f"{make}config = make(0.3)\n{TRAIN}") == {"epsilon": 0.3, "beta": 0.1}
    inside = (
        f"{make}def main():\n    config = make(0.3, beta=0.2)\n    {TRAIN}\nif __name__ == '__main__':\n    main()\n"
    )
    assert keys_of(tmp_path, inside) == {"epsilon": 0.3, "beta": 0.2}


def test_what_a_script_trains_before_it_exits_is_read(tmp_path: Path) -> None:
    main = "def main():\n    if u():\n        sys.exit(1)\n    GRPOTrainer(args=GRPOConfig(epsilon=0.3))\n"
    for end in ("sys.exit(main())", "raise SystemExit(main())", "main()\n    os._exit(0)", "main()"):
        found = keys_of(tmp_path, f"import sys\n{main}if __name__ == '__main__':\n    {end}\n")
        assert found == {"epsilon": 0.3}
    one = "    GRPOTrainer(args=GRPOConfig(epsilon={}))\n    exit()\n"
    both = f"if u():\n{one.format(0.2)}else:\n{one.format(0.4)}"
    assert why(keys_of(tmp_path, both)["epsilon"]) == BRANCHES


def test_a_function_called_twice_makes_two_objects(tmp_path: Path) -> None:
    make = "def make(eps):\n    return GRPOConfig(epsilon=eps, beta=0.1)\n\n"
    found = keys_of(tmp_path, f"{make}a = make(0.2)\nb = make(0.4)\n")
    assert (why(found["epsilon"]), found["beta"]) == ("which line 5 sets differently each time it is reached", 0.1)
    assert keys_of(tmp_path, f"{make}config = make(0.2)\nb = make(0.4)\n{TRAIN}")["epsilon"] == 0.2


def test_functions_that_nothing_is_seen_to_call_do_not_mix(tmp_path: Path) -> None:
    body = "def a():\n    return GRPOConfig(epsilon=0.2, beta=0.1)\ndef b():\n    return GRPOConfig(epsilon=0.4, beta=0.1)\n"
    found = keys_of(tmp_path, f"{body}pick([a, b])\n")
    assert (why(found["epsilon"]), found["beta"]) == ("which lines 5, 7 set differently", 0.1)


def test_objects_of_one_class_inside_another_keep_their_places(tmp_path: Path) -> None:
    body = "PPOActorConfig(reward_norm=NormConfig(mean_level='group'), adv_norm=NormConfig(mean_level='batch'))\n"
    found = keys_of(tmp_path, body)
    assert (found["reward_norm.mean_level"], found["adv_norm.mean_level"]) == ("group", "batch")


def test_settings_of_other_training_do_not_fill_in(tmp_path: Path) -> None:
    found = keys_of(tmp_path, "SFTConfig(loss_type='nll', beta=0.3)\nGRPOConfig(epsilon=0.2)\nSFTConfig(epsilon=1.0)\n")
    assert found == {"epsilon": 0.2}


def test_a_mapping_whose_keys_are_not_known_is_named(tmp_path: Path) -> None:
    file = tmp_path / "run.py"
    file.write_text(HEAD + "more = {'beta': 0.1}\nmore[u()] = 1\nGRPOConfig(epsilon=0.2, **more)\n")
    assert contents_of(file).keys == {"epsilon": 0.2, "beta": 0.1}
    assert [each.name for each in contents_of(file).parents] == ["the mapping **more (line 6)"]


def test_an_argument_that_the_script_sets_is_no_default_any_more(tmp_path: Path) -> None:
    parse = (
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--eps', default=0.2)\nargs = p.parse_args()\n"
    )
    assert keys_of(tmp_path, f"{parse}args.eps = 0.4\nGRPOConfig(epsilon=args.eps)\n")["epsilon"] == 0.4


def test_what_an_argument_of_the_parser_starts_is_read_where_nothing_else_is(tmp_path: Path) -> None:
    parse = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--go', action='store_true')\nargs = p.parse_args()\n"
    assert keys_of(tmp_path, f"{parse}if args.go:\n    GRPOConfig(epsilon=0.2)\n")["epsilon"] == 0.2
    assert keys_of(tmp_path, f"{parse}e = 0.2\nif args.go:\n    e = 0.4\nGRPOConfig(epsilon=e)\n")["epsilon"] == 0.2


def test_words_that_only_one_branch_adds_to_a_command_are_unknown(tmp_path: Path) -> None:
    for added in ("cmd += ' --epsilon 0.4'", "cmd = cmd + ' --epsilon 0.4'"):
        body = f"cmd = 'python train.py --beta 0.1'\nif u():\n    {added}\nos.system(cmd)\n"
        found = keys_of(tmp_path, body)
        assert (found["beta"], why(found["epsilon"])) == (0.1, BRANCHES)
    listed = (
        "cmd = ['python', 'train.py', '--beta', '0.1']\nif u():\n    cmd += ['--epsilon', '0.4']\nsubprocess.run(cmd)\n"
    )
    found = keys_of(tmp_path, listed)
    assert (found["beta"], why(found["epsilon"])) == (0.1, BRANCHES)


# ── scripts without end ──

ENDLESS = {
    "a mapping that holds itself": "a = {}\n" + "a = dict(a=a, b=a, c=[a, a])\n" * 60 + "GRPOConfig(epsilon=a)\n",
    "a list that doubles": "a = [1]\n" + "a = [a, a]\n" * 45 + "GRPOConfig(output_dir=f'{a}', epsilon=0.2)\n",
    "twins": "a = b = [1]\n" + "a = [a, a]\nb = [b, b]\n" * 45 + "c = a if u() else b\nGRPOConfig(epsilon=0.2, beta=c)\n",
    "twins of branches": "a = [1]\n" + "a = [a, a]\n" * 14 + "if u():\n    c = a\nelse:\n    c = [*a]\n" * 60 + "GRPOConfig(epsilon=0.2)\n",
    "functions that call one another": "def f0():\n    return 1\n"
    + "".join(f"def f{n}():\n    f{n - 1}()\n    f{n - 1}()\n    return f{n - 1}()\n" for n in range(1, 40))
    + "f39()\n",
    "loops within loops": "".join(f"{' ' * n}for x{n} in u():\n{' ' * n} e = {n}\n" for n in range(60)) + "GRPOConfig(epsilon=0.2)\n",
    "names in many branches": "".join(f"a{n} = {n}\n" for n in range(3000)) + "if u():\n    b = 1\n" * 3000 + "GRPOConfig(epsilon=0.2)\n",
    "an elif without end": "if u():\n    e = 0\n"
    + "".join(f"elif u{n}():\n    e = {n}\n" for n in range(800))
    + "GRPOConfig(epsilon=0.2)\n",
    "a text that grows": "s = 'a' * 1\n" + "s = s + s\n" * 60 + "GRPOConfig(epsilon=0.2)\n",
    "a mapping inside itself": "a = {}\n" + "a['a'] = a\na['b'] = a\n" * 60 + "GRPOConfig(epsilon=0.2)\n",
    "a recursion": "def f(x):\n    return f([x, x])\nf(1)\nGRPOConfig(epsilon=0.2)\n",
}  # fmt: skip


@pytest.mark.parametrize("name", ENDLESS)
def test_a_script_is_read_or_refused_within_a_count_of_values(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trimtab.dialects.sources import python_flow

    counts: list[int] = []
    charge = python_flow.Work.charge

    def counted(work: python_flow.Work, many: int = 1) -> None:
        counts.append(work.count + many)
        charge(work, many)

    monkeypatch.setattr(python_flow.Work, "charge", counted)
    with contextlib.suppress(ConfigFileError):
        assert keys_of(tmp_path, ENDLESS[name])["epsilon"] is not None
    assert 0 < max(counts) <= MOST_WORK + python_flow.MOST_SIZE
