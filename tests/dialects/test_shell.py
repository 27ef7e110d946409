"""The shell reader: every form of assignment, word and branch that launch scripts have; nothing runs, nothing hangs."""

from __future__ import annotations

import contextlib
import os
import random
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.dialects.sources.grammar import ShellError
from trimtab.dialects.sources.launch import launches
from trimtab.dialects.sources.unknown import Holes, Unknown
from trimtab.dialects.sources.walk import walk_script

FORMS = [
    # variables
    ("A=1\nrun $A ${A} x$A", ["1", "1", "x1"]),
    ("run ${A:-8} ${A-9} ${B:=7} $B", ["8", "9", "7", "7"]),
    ("A=\nrun x${A:-8} x${A-9} x${A:+yes}", ["x8", "x", "x"]),
    ("A=1\nrun ${A:+yes}${C:+no}", ["yes"]),
    (': "${A:=5}"\nrun $A', ["5"]),
    ("A=$B\nrun x$A", ["x$B"]),
    ("A=a/b/c.txt\nrun ${A##*/} ${A#*/} ${A%.txt} ${A%%/*} ${A/b/x} ${A^^}", ["c.txt", "b/c.txt", "a/b/c", "a", "a/x/c.txt", "A/B/C.TXT"]),
    ("A=abc\nrun ${A/[a-c]/x}", ["${A/[a-c]/x}"]),
    ("A=abc\nrun ${#A}", ["3"]),
    ("export A=1 B=2\nlocal C=3\nreadonly D=4\ndeclare -r E=5\nrun $A$B$C$D$E", ["12345"]),
    ("A=1 B=2 run $A", ["$A"]),
    ("A=1\nunset A\nrun $A", ["$A"]),
    ("A=x\nA+=y\nrun $A", ["xy"]),
    ("run $1 ${2:-two} $# \"$@\" ${@:3}", ["$1", "two", "0"]),
    # quotes
    ("A='it is'\nrun \"$A\" $A '$A' \\$A", ["it is", "it", "is", "$A", "$A"]),
    ("run $'a\\tb' \"a'b\" 'a\"b'", ["a\tb", "a'b", 'a"b']),
    ("run a\\\n  b \\\n  c # it's a comment\n", ["a", "b", "c"]),
    ("run \"a\\\nb\" \"\\$x\"", ["ab", "$x"]),
    ('run ""', [""]),
    # arithmetic
    ("N=4\nrun $((1024 * 8)) $((N*2+1)) $((${N} ** 2)) $(( (7 - 10) / 2 )) $((7 % 3))", ["8192", "9", "16", "-1", "1"]),
    ("run $((N * 2))", ["$N"]),
    ("run $((1 / 0))", ["$((1 / 0))"]),
    ("N=$((\n  1024 *\n  2\n))\nrun $N", ["2048"]),
    # arrays
    ("A=(a 'b c')\nA+=(d)\nrun \"${A[@]}\"", ["a", "b c", "d"]),
    ("A=(a 'b c')\nrun ${A[@]} \"${A[*]}\" ${#A[@]} ${A[0]}", ["a", "b", "c", "a b c", "2", "a"]),
    ("A=(\n  --x 1 # don't\n\n  # --y 2\n  --z\n)\nrun ${A[@]}", ["--x", "1", "--z"]),
    ("A=()\nrun \"${A[@]}\" end", ["end"]),
    ("run ${A[@]}", ["${A[@]}"]),
    # substitution
    ("run $(hostname) x`date`", ["$(hostname)", "x`date`"]),
    ("run $(echo 3) $(cat <<END\nfour\nEND\n)", ["3", "four"]),
    ("run <(ls) >(cat)", ["<(ls)", ">(cat)"]),
    ("echo 'run a b' > job.sh\nsbatch job.sh", ["a", "b"]),
    ("printf 'cd x\\nrun a\\n' > job.sbatch", ["a"]),
    # branches
    ("A=2\nif [ $A -gt 1 ]; then B=x; else B=y; fi\nrun $B", ["x"]),
    ("A=2\nif [[ $A == 3 || $A -lt 1 ]]; then B=x; elif [ $A = 2 ]; then B=z; fi\nrun $B", ["z"]),
    ("if [ -f x ]; then B=x; else B=y; fi\nrun $B", ["$B"]),
    ("if [ -f x ]; then B=same; else B=same; fi\nrun $B", ["same"]),
    ("B=1\nif [ -z \"$1\" ]; then echo usage; exit 1; fi\nrun $B", ["1"]),
    ("B=1\n[ -n \"$X\" ] && B=2\nrun $B", ["$B"]),
    ("B=1\nfalse && B=2\ntrue || B=3\nrun $B", ["1"]),
    ("B=1\n[ -d x ] || exit 1\nrun $B", ["1"]),
    ("case a.b in x) B=1 ;; a*|q) B=2;; *) B=3; esac\nrun $B", ["2"]),
    ("case $X in x) B=1 ;; *) B=1 ;; esac\nrun $B", ["1"]),
    ("while [[ $# -gt 0 ]]; do case $1 in --lr) LR=$2; shift 2 ;; esac; done\nLR=${LR:-5}\nrun $LR", ["5"]),
    ("for i in 1 2; do B=$i; done\nrun $B", ["$B"]),
    ("for ((i=0;i<3;i++)); do echo $i; done\nrun ok", ["ok"]),
    ("until curl x; do sleep 1; done\nrun ok", ["ok"]),
    ("(A=1; B=2)\n{ C=3; }\nrun x$A $C", ["x$A", "3"]),
    ("if (( 2 > 1 )); then A=1; fi\nrun $A", ["1"]),
    # functions and texts that are scripts
    ("f() {\n  local a=$1; shift\n  run $a \"$@\"\n}\nf 1 2 3", ["1", "2", "3"]),
    ("function f { run in; }\n", ["in"]),
    ("C='run a b'\neval \"$C c\"", ["a", "b", "c"]),
    ("bash -c \"run a\"", ["a"]),
    ("srun --nodes=1 bash -c 'cd x && run a'", ["a"]),
    ("bash <<END\nrun a\nEND\n", ["a"]),
    ("cat > job.sh <<'END'\nrun '$A'\nEND\n", ["$A"]),
    # the rest
    ("run a > log 2>&1 & wait", ["a"]),
    ("run a | tee log; echo b", ["a"]),
    ("run a &>> log", ["a"]),
    ("cat <<'END'\ndon't \" stop\nEND\nrun a", ["a"]),
    ("cat <<-END\n\tdon't\n\tEND\nrun a", ["a"]),
    ("run a \\\n  # a comment that cuts\n  --b c", ["a", "--b", "c"]),
    ("set -xeuo pipefail\nshopt -s nullglob\ntrap 'kill 0' EXIT\nrun a", ["a"]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), FORMS)
def test_a_form_of_the_shell_gives_these_words(text: str, expected: list[str]) -> None:
    holes = Holes()
    found = [each for each in walk_script(text, holes).started if each.words[0] == "run"]
    assert [holes.with_names(word) for word in found[0].words[1:]] == expected


@pytest.mark.parametrize(
    "text", ["run 'a", 'run "a', "A=(a", "run ${A", "if true; then run", "f() {", "case x in", "run )"]
)
def test_a_text_that_no_shell_reads_is_refused(text: str) -> None:
    with pytest.raises(ShellError):
        walk_script(text, Holes())


def test_a_value_names_its_variable_and_line() -> None:
    keys = launches("python t.py --a 1 \\\n  --lr $LR --b=$((2 * N)) --c x$X")[0].keys
    assert keys == {"a": 1, "lr": Unknown("$LR", 2), "b": Unknown("$N", 2), "c": Unknown("$X", 2)}


def test_words_that_may_be_any_number_are_no_value() -> None:
    keys = launches("python t.py --flag $EXTRA_ARGS --other ${MORE[@]} --lr $LR")[0].keys
    assert keys == {"flag": True, "other": True, "lr": Unknown("$LR", 1)}


# ── nothing runs, nothing hangs ──


def test_nothing_is_run_and_no_environment_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    canary = tmp_path / "canary"
    monkeypatch.setenv("TRIMTAB_SECRET", "secret")
    text = (
        f"touch {canary}\nA=$(touch {canary}; echo x)\nB=`touch {canary}`\neval 'touch {canary}'\nbash -c 'touch {canary}'\n"
        f"python t.py --a $A --b $TRIMTAB_SECRET --c ${{HOME}} <(touch {canary})\ntrap 'touch {canary}' EXIT\n"
    )
    holes = Holes()
    found = walk_script(text, holes)
    assert not canary.exists()
    assert "secret" not in str([holes.with_names(word) for each in found.started for word in each.words])
    assert os.environ["HOME"] not in str([each.words for each in found.started if each.words[0] == "python"])


BOMBS = {
    "a text that doubles": "A=xxxxxxxxxx\n" + "A=$A$A\n" * 60 + "run $A",
    "an array that doubles": "A=(x)\n" + 'A+=("${A[@]}")\n' * 60 + "run ${A[@]}",
    "a function that calls itself": "f() { f; f; }\nf\n",
    "functions that call each other": "".join(f"f{n}() {{ f{n + 1}; f{n + 1}; }}\n" for n in range(40)) + "f0\n",
    "a loop": "while true; do A+=x; done\n",
    "parentheses": "(" * 5000,
    "braces": "run " + "${A:-" * 5000,
    "substitutions": "run " + "$(" * 5000,
    "sums": "run " + "$((" * 20000,
    "powers": "run $((9**9**9**9**9))",
    "backticks": "run " + "`\\" * 20000,
    "branches": "if [ $X ]; then A=1; fi\n" * 3000 + "".join(f"V{n}=1\n" for n in range(3000)),
    "branches over many variables": "".join(f"V{n}=1\n" for n in range(3000)) + "[ $X ] && A=1\n" * 3000,
    "quotes": "run " + "'a'" * 50000,
    "a long line": "run " + "a " * 100_000,
    "here-documents": "".join(f"cat <<E{n}\n" for n in range(2000)),
    "continuations": "run a \\\n# b\n" * 20000,
    "many arrays": "".join(f"A{n}=(python3 {n}.py --x {n})\nrun a b c\n" for n in range(3000)),
    "long arrays": "".join(f"A{n}=(" + "--x 1 " * 2000 + ")\nrun ${A0[@]}\n" for n in range(12)),
    "an eval in an eval": "eval " * 3000 + "'eval x'",
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_text_made_to_stall_ends_in_time(name: str) -> None:
    start = time.process_time()
    with contextlib.suppress(ShellError):
        launches(BOMBS[name])
    assert time.process_time() - start < 2.0


TOKENS = [
    "if", "then", "else", "fi", "for", "in", "do", "done", "case", "esac", "while", "{", "}", "(", ")", "((", "))", "[[", "]]",
    "$(", "${", "$((", "`", '"', "'", "\\", "\\\n", "\n", ";", ";;", "&&", "||", "|", "&", "<<E\n", "E\n", "<<<", "<(", ">", "#",
    "A=", "A+=(", "$A", "${A[@]}", "${A:-", "}", "run", "--x", "=1", "f()", "eval", "bash -c", " ", "\t", "é", "\ue0003\ue001",
    "A=(python3 t.py --x 1)", "> a.sh", "echo", "printf",
]  # fmt: skip


def _survives(text: str) -> None:
    start = time.process_time()
    with contextlib.suppress(ShellError):
        launches(text)
    assert time.process_time() - start < 2.0


@given(st.lists(st.sampled_from(TOKENS), max_size=60))
@settings(max_examples=150, deadline=None)
def test_any_row_of_tokens_is_read_or_refused(tokens: list[str]) -> None:
    _survives("".join(tokens))


@given(st.text(max_size=200))
@settings(max_examples=100, deadline=None)
def test_any_text_is_read_or_refused(text: str) -> None:
    _survives(text)


@pytest.mark.slow
def test_many_rows_of_tokens_and_broken_scripts_are_read_or_refused() -> None:
    draw = random.Random(0)
    whole = [each.read_text() for each in sorted((Path(__file__).parent / "files").rglob("*.sh"))]
    for _ in range(20_000):
        _survives("".join(draw.choices(TOKENS, k=draw.randrange(80))))
        text = draw.choice(whole)
        cut = sorted(draw.randrange(len(text)) for _ in range(2))
        _survives(text[: cut[0]] + draw.choice(TOKENS) + text[cut[1] :])
