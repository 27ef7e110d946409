import csv
import importlib.util
import json
import random
import sys

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from trimtab.config.training import Reward, Task
from trimtab.errors import ConfigError
from trimtab.train.messages import Score
from trimtab.train.tasks import Judge, source

ROWS = [{"question": f"{n} + 1?", "answer": f"{n} + 1 = {n + 1}\n#### {n + 1}", "level": n} for n in range(30)]


def write_jsonl(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_csv(path, rows):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, ["question", "answer", "level"])
        writer.writeheader()
        writer.writerows(rows)


WRITERS = {
    ".jsonl": write_jsonl,
    ".json": lambda path, rows: path.write_text(json.dumps(rows)),
    ".csv": write_csv,
    ".parquet": lambda path, rows: parquet.write_table(pyarrow.Table.from_pylist(rows), path),
}


def task(path, seed=0, **settings):
    return source(Task(name="file", path=str(path), **settings), seed)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("rows") / "sums.jsonl"
    write_jsonl(path, ROWS)
    return path


@pytest.mark.parametrize("ending", WRITERS)
def test_every_kind_of_file_gives_the_same_problems(ending, tmp_path):
    path = tmp_path / f"sums{ending}"
    WRITERS[ending](path, ROWS)
    made = task(path)
    problems = [made.problem(index) for index in range(27)] + made.held_out(10)
    assert sorted((each.prompt, each.answer) for each in problems) == sorted((r["question"], r["answer"]) for r in ROWS)
    assert {str(each.extra["level"]) for each in problems} == {str(row["level"]) for row in ROWS}
    assert len({each.id for each in problems}) == 30
    assert all(each.id.startswith(f"{path}:") for each in problems)


@settings(max_examples=5)
@given(st.integers(0, 2**32), st.integers(0, 1000))
def test_an_epoch_is_a_shuffle_that_seed_and_epoch_decide(file, seed, epoch):
    made, again = task(file, seed), task(file, seed)
    indices = range(27 * epoch, 27 * (epoch + 1))
    order = [made.problem(index).id for index in indices]
    assert len(set(order)) == 27
    assert order == [again.problem(index).id for index in reversed(indices)][::-1]
    assert order != [made.problem(index + 27).id for index in indices]
    assert order != [task(file, seed + 1).problem(index).id for index in indices]


def test_the_last_rows_are_held_out_and_never_trained(file):
    made = task(file)
    assert [each.prompt for each in made.held_out(100)] == [row["question"] for row in ROWS[-3:]]
    assert [each.prompt for each in made.held_out(2)] == [row["question"] for row in ROWS[-3:-1]]
    more = task(file, options={"reserve": 29})
    assert {more.problem(index).prompt for index in range(5)} == {"0 + 1?"}
    assert len(more.held_out(100)) == 29


def test_a_held_out_file_keeps_its_prompts_out_of_training(file, tmp_path):
    write_jsonl(tmp_path / "test.jsonl", [ROWS[3], {"question": "new?", "answer": 1}])
    made = task(file, held_out=str(tmp_path / "test.jsonl"))
    assert [(each.prompt, each.answer) for each in made.held_out(9)] == [("3 + 1?", "3 + 1 = 4\n#### 4"), ("new?", "1")]
    trained = {made.problem(index).prompt for index in range(29)}
    assert trained == {row["question"] for row in ROWS} - {"3 + 1?"}
    with pytest.raises(ConfigError, match="that are not held out, got none"):
        task(file, held_out=str(file))


def test_fields_and_template_are_the_users_choice(tmp_path):
    write_jsonl(tmp_path / "a.jsonl", [{"q": "x", "a": 1, "answer": "other"}, {"q": "y", "a": 2.5}])
    made = task(tmp_path / "a.jsonl", prompt="q", answer="a", template="Q: {prompt}\nA:")
    problem = made.problem(0)
    assert (problem.prompt, problem.answer, problem.extra) == ("Q: x\nA:", "1", {"answer": "other"})
    assert made.held_out(1)[0].answer == "2.5"
    assert (made.characters, made.max_tokens) == (None, None)


def test_replies_of_a_row_are_those_of_its_problem_and_reach_functions_too(tmp_path):
    rows = [{"question": "x", "answer": "1", "replies": each} for each in (["a", "b"], [], None)]
    write_jsonl(tmp_path / "a.jsonl", [*rows, {"question": "y", "answer": "2"}])
    made = task(tmp_path / "a.jsonl", options={"reserve": 1})
    found = {each.id.rpartition(":")[2]: each for each in made.all()}
    assert [found[str(line)].replies for line in (1, 2, 3, 4)] == [("a", "b"), (), (), ()]
    assert found["1"].extra["replies"] == ["a", "b"]
    asked = task(tmp_path / "a.jsonl", options={"reserve": 1}, answer="question", prompt="answer")
    assert asked.problem(0).prompt == "1"


def test_a_file_of_gsm8k_is_judged_by_its_last_numbers(file):
    config = Task(name="file", path=str(file), rewards=(Reward(verifier="numeric"),))
    made = source(config, 0)
    problem = made.held_out(1)[0]  # 27 + 1
    with Judge(config, made) as judge:
        scores = judge.scores([(problem, "It is 28."), (problem, "28 or 29"), (problem, problem.answer)])
    assert [score.reward for score in scores] == [1.0, 0.0, 1.0]


def test_without_rewards_the_response_is_the_answer(tmp_path):
    write_jsonl(tmp_path / "a.jsonl", [{"question": "x", "answer": "1"}] * 2 + [{"question": "y", "answer": "2"}])
    made = task(tmp_path / "a.jsonl")
    assert made.score(made.problem(0), " 1\n") == Score(1.0, True, {"exact": 1.0})
    assert made.score(made.problem(0), "1.0").reward == 0.0
    with pytest.raises(ConfigError, match=r"Set model\.warm_start to null"):
        made.demonstration(made.problem(0), 0.1, random.Random(0))


GOOD = '{"question": "a", "answer": "b"}\n'


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.jsonl", GOOD + '\n{"question": "a"}\n', "a.jsonl:3 needs the field 'answer', got ['question']"),
        ("a.jsonl", GOOD + '{"question": ["a"], "answer": "b"}\n', "a.jsonl:2 needs text in 'question', got ['a']"),
        ("a.jsonl", GOOD + '{"question": 1, "answer": "b"}\n', "a.jsonl:2 needs text in 'question', got 1"),
        ("a.jsonl", GOOD + '{"question": " ", "answer": "b"}\n', "a.jsonl:2 needs text in 'question', got ' '"),
        ("a.jsonl", GOOD + '{"question": "a", "answer": null}\n', "a.jsonl:2 needs text in 'answer', got None"),
        ("a.jsonl", GOOD + '{"question": "a", "answer": true}\n', "a.jsonl:2 needs text in 'answer', got True"),
        ("a.jsonl", GOOD + '{"question": "a", "answer": NaN}\n', "a.jsonl:2 needs text in 'answer', got nan"),
        (
            "a.jsonl",
            GOOD + '{"question": "a", "answer": "b", "replies": "c"}\n',
            "a.jsonl:2 needs a list of texts in 'replies', got 'c'",
        ),
        (
            "a.jsonl",
            GOOD + '{"question": "a", "answer": "b", "replies": ["c", 1]}\n',
            "a.jsonl:2 needs a list of texts in 'replies', got ['c', 1]",
        ),
        (
            "a.jsonl",
            GOOD + '{"question": "a", "answer": "b", "replies": ["c", ""]}\n',
            "a.jsonl:2 needs a list of texts in 'replies', got ['c', '']",
        ),
        ("a.jsonl", GOOD + "{'question'}\n", "a.jsonl:2 needs valid JSON"),
        ("a.jsonl", GOOD + "3\n", "a.jsonl:2 needs an object of fields, got 3"),
        ("a.jsonl", GOOD + "[" * 100_000, "a.jsonl:2 needs valid JSON"),
        ("a.jsonl", "", "a.jsonl, got an empty file"),
        ("a.jsonl", "\n\n", "a.jsonl, got an empty file"),
        ("a.jsonl", GOOD, "than the 1 held out, got 1"),
        ("a.json", GOOD + GOOD, "a.json needs valid JSON"),
        ("a.json", GOOD, "needs a list of objects"),
        ("a.json", "[]", "a.json, got an empty file"),
        ("a.csv", "question,answer\na,b\nc\n", "a.csv:3 needs as many cells as the header"),
        ("a.csv", "question,answer\na,b\nc,d,e\n", "a.csv:3 needs as many cells as the header"),
        ("a.csv", "question,answer\na,\n", "a.csv:2 needs text in 'answer', got ''"),
        ("a.csv", 'question,answer\na,"b\n', "needs valid CSV"),
        ("a.csv", "question,answer\n", "a.csv, got an empty file"),
        ("a.parquet", "not parquet", "needs to be a parquet file"),
        ("a.txt", "text", "Task needs a file ending in .jsonl"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(name, text, message, tmp_path):
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError) as refused:
        task(tmp_path / name)
    assert message in str(refused.value)


def test_bytes_that_are_no_text_are_refused(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'{"question": "\xff"}')
    with pytest.raises(ConfigError, match="needs to be readable"):
        task(tmp_path / "a.jsonl")


def test_a_byte_order_mark_and_a_missing_last_newline_are_read(tmp_path):
    (tmp_path / "b.jsonl").write_bytes(b"\xef\xbb\xbf" + GOOD.encode() + GOOD.replace('"a"', '"c"').strip().encode())
    assert [each.prompt for each in task(tmp_path / "b.jsonl").held_out(5)] == ["c"]


def test_a_missing_file_and_a_missing_path_are_refused():
    with pytest.raises(ConfigError, match=r"existing file, got 'no\.jsonl'"):
        task("no.jsonl")
    with pytest.raises(ConfigError, match="needs path with name file"):
        source(Task(name="file"), 0)
    with pytest.raises(ConfigError, match="Did you mean 'reserve'"):
        task("no.jsonl", options={"reserv": 3})


def test_a_hub_dataset_needs_its_package():
    if importlib.util.find_spec("datasets") is not None:
        pytest.skip("datasets is installed")
    with pytest.raises(ConfigError, match="pip install datasets"):
        task("openai/gsm8k")


def test_a_hub_dataset_is_read_by_subset_and_split(tmp_path, monkeypatch):
    (tmp_path / "datasets.py").write_text(
        "def load_dataset(*of, split):\n"
        "    if of[0] == 'gone': raise OSError('no such dataset')\n"
        "    return [{'question': f'{of} {split} {n}', 'answer': 'a'} for n in range(2)]\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "datasets", raising=False)
    made = task("openai/gsm8k", held_out="openai/gsm8k:test", options={"subset": "main"})
    assert made.held_out(1)[0].prompt == "('openai/gsm8k', 'main') test 0"
    assert made.held_out(1)[0].id == "openai/gsm8k:test:1"
    assert {made.problem(0).id, made.problem(1).id} == {"openai/gsm8k:train:1", "openai/gsm8k:train:2"}
    with pytest.raises(ConfigError, match="OSError: no such dataset"):
        task("gone")
    monkeypatch.delitem(sys.modules, "datasets")
