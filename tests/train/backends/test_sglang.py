"""SGLang's servers against a scripted one: what is sent when, what is refused, and what an answer must be."""

from __future__ import annotations

import json
import math
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.train.backends.served import ScriptedSglang, serving
from tests.train.backends.test_servers import gathered
from tests.train.engines.vllm_models import jobs, named, policy, rollout
from tests.waiting import LIMIT
from trimtab.config.training import Rollout, Train
from trimtab.errors import ConfigError, InputError, RunError
from trimtab.train.backends.servers import ServersBackend
from trimtab.train.backends.table import backend_of
from trimtab.train.engines.sglang.client import asked_of
from trimtab.train.engines.sglang.server import check_run
from trimtab.train.engines.table import EngineRecipe
from trimtab.train.messages import Job, Sampling

Start = Callable[..., ServersBackend]
KEPT = ["/pause_generation:in_place", "/update_weights_from_disk", "/continue_generation", "/generate", "/generate"]
FLUSHED = ["/pause_generation:retract", "/flush_cache", *KEPT[1:]]


@pytest.fixture(scope="module")
def models() -> list[Any]:
    return [policy(seed, tied=True) for seed in range(2)]


@pytest.fixture
def script(models: list[Any]) -> ScriptedSglang:
    return ScriptedSglang(models[0].config)


@pytest.fixture
def start(models: list[Any], script: ScriptedSglang, tmp_path: Path) -> Iterator[Start]:
    made: list[ServersBackend] = []
    with serving(script) as address:

        def started(**changes: Any) -> ServersBackend:
            settings = {"engine": "sglang-server", "servers": (address,), "samples": 4, **changes}
            backend = ServersBackend(
                models[0].config, rollout(**settings), stop=[0], hold=8, directory=tmp_path, start_patience=LIMIT
            )
            made.append(backend)
            backend.begin(named(models[0]).items(), 0)
            return backend

        yield started
        for backend in made:
            backend.close()


def plain_jobs(count: int, first: int = 0, **changes: Any) -> list[Job]:
    return [
        Job(first + number, job.prompt, 4, 0, 24, changes.get("sampling", Sampling()), head="mask")
        for number, job in enumerate(jobs(count))
    ]


@pytest.mark.parametrize(("in_flight", "later"), [("keep_cache", KEPT), ("recompute", FLUSHED), ("finish", FLUSHED)])
def test_each_version_is_swapped_in_its_order_and_proved(
    start: Start, script: ScriptedSglang, models: list[Any], in_flight: str, later: list[str]
) -> None:
    backend = start(in_flight=in_flight)
    backend.give(plain_jobs(1))
    first = gathered(backend, lambda news: bool(news.groups))
    backend.publish(named(models[1]).items(), 1)
    backend.give(plain_jobs(1, first=5))
    second = gathered(backend, lambda news: bool(news.groups))
    assert "takes no seeds" in first.notes[0]
    assert second.notes == ()
    assert [each.groups[0].oldest for each in (first, second)] == [0, 1]
    assert script.calls == [
        *FLUSHED,
        "/generate",
        *later,
        "/generate",
    ]  # another run may have left keys before the first
    assert [body["flush_cache"] for body in script.updates] == [False, False]
    assert [body["extra_key"] for body in script.asked] == ["v0", "v1"]
    assert all("sampling_seed" not in body["sampling_params"] for body in script.asked)
    assert len(backend.differences) == 4
    assert max(backend.differences) < 1e-6


def test_keys_of_the_version_before_stop_the_run_though_a_prompt_is_scored_right(
    start: Start, script: ScriptedSglang, models: list[Any]
) -> None:
    backend = start()
    backend.give(plain_jobs(1))
    gathered(backend, lambda news: bool(news.groups))
    script.stale = dict(script.weights)
    backend.publish(named(models[1]).items(), 1)
    with pytest.raises(RunError, match=r"version 1 .* prefix cache holds keys of other weights"):
        gathered(backend, lambda news: False)


def test_log_probs_before_the_temperature_stop_the_run(start: Start, script: ScriptedSglang) -> None:
    script.is_raw = True
    backend = start(temperature=0.7)
    with pytest.raises(RunError, match=r"at temperature 0.7, got ones that are off .*SGLANG_RETURN_ORIGINAL_LOGPROB"):
        gathered(backend, lambda news: False)


def test_a_cut_is_recorded_with_the_log_probs_of_what_was_left(start: Start, script: ScriptedSglang) -> None:
    backend = start(temperature=0.7, top_k=8, top_p=0.9)
    backend.give(plain_jobs(1, sampling=Sampling(0.7, 8, 0.9)))
    sample = gathered(backend, lambda news: bool(news.groups)).groups[0].samples[2]
    assert script.asked[0]["sampling_params"]["top_k"] == 8
    assert (len(script.asked[0]["input_ids"]), script.asked[0]["sampling_params"]["n"]) == (4, 1)
    assert sample.behavior.tolist() == [-0.5] * 24
    assert sample.raw is None
    assert sample.head is not None
    assert sample.head.ids.tolist() == [3, 9] * 24
    assert max(backend.differences) < 1e-6


def spoilt(path: list[Any], value: Any) -> Callable[[dict[str, Any]], None]:
    """Puts a value at a place of each answer."""

    def put(answer: dict[str, Any]) -> None:
        place: Any = answer
        for name in path[:-1]:
            place = place[name]
        place[path[-1]] = value

    return put


META = "meta_info"
TOLD = "output_token_logprobs"


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (spoilt(["output_ids", 3], 20), "token ids from 0 to 19, got 20"),
        (spoilt(["output_ids", 3], -1), "token ids from 0 to 19, got -1"),
        (spoilt(["output_ids", 3], True), "token ids from 0 to 19, got True"),
        (spoilt(["output_ids"], []), "1 to 24 tokens, got 0"),
        (spoilt(["output_ids"], [1] * 25), "1 to 24 tokens, got 25"),
        (spoilt([META, TOLD, 3], [None, 1, None]), "finite log-probs of at most 0 for group 0, got None"),
        (spoilt([META, TOLD, 3], [math.nan, 1, None]), "finite log-probs of at most 0 for group 0, got nan"),
        (spoilt([META, TOLD, 3], [-math.inf, 1, None]), "finite log-probs of at most 0 for group 0, got -inf"),
        (spoilt([META, TOLD, 3], [0.5, 1, None]), "finite log-probs of at most 0 for group 0, got 0.5"),
        (spoilt([META, TOLD, 3], [-1.0, 7, None]), "log-probs of the tokens it sampled"),
        (spoilt([META, TOLD], [[-1.0, 1, None]]), "a log-prob for each of 24 tokens, got 1"),
        (spoilt([META, "weight_versions", 0, "end"], 23), "versions of the weights for 24 tokens"),
        (spoilt([META, "weight_versions", 0, "start"], 2), "versions of the weights that cover its tokens"),
        (spoilt([META, "weight_versions", 0, "version"], "default"), "an answer that can be read"),
        (spoilt([META, "weight_versions", 0, "version"], "7"), "versions of the weights that it was sent"),
        (spoilt([META, "finish_reason"], {"type": "stop", "matched": 1}), r"at one of \[0\], got 1"),
        (spoilt([META], None), "an answer that can be read"),
    ],
)
def test_an_answer_that_no_sampling_can_have_given_stops_the_run(
    start: Start, script: ScriptedSglang, spoil: Callable[[dict[str, Any]], None], said: str
) -> None:
    script.spoil = spoil
    backend = start()
    backend.give(plain_jobs(1))
    with pytest.raises(RunError, match=said):
        gathered(backend, lambda news: False)


def test_a_mask_without_the_token_drawn_and_a_group_of_too_few_are_refused(
    start: Start, script: ScriptedSglang
) -> None:
    script.spoil = spoilt([META, "output_token_sampling_mask", 3], [7, 9])
    backend = start(top_k=8)
    backend.give(plain_jobs(1, sampling=Sampling(1.0, 8)))
    with pytest.raises(RunError, match="its own among those that were left"):
        gathered(backend, lambda news: False)
    script.spoil = lambda answer: None
    other = start()
    other.give([Job(3, jobs(1)[0].prompt, 3, 0, 24)])  # it answers with four whatever it is asked
    with pytest.raises(RunError, match="group 3 with 3 responses, got 4"):
        gathered(other, lambda news: False)


def test_an_aborted_request_is_sampled_again_by_a_fresh_seat(start: Start, script: ScriptedSglang) -> None:
    script.spoil = spoilt([META, "finish_reason"], {"type": "abort", "message": "shutting down"})
    backend = start()
    backend.give(plain_jobs(1))
    lost = gathered(backend, lambda news: bool(news.lost))
    assert lost.lost == (0,)
    assert "shutting down" in lost.notes[-1]


def test_a_response_that_was_retracted_over_two_versions_is_sampled_again(start: Start, script: ScriptedSglang) -> None:
    def retracted(answer: dict[str, Any]) -> None:
        if len(script.asked) == 1:
            spans = [{"version": "0", "start": 0, "end": 9}, {"version": "0", "start": 9, "end": 24}]
            answer[META] |= {"num_retractions": 1, "weight_versions": spans}

    script.spoil = retracted
    backend = start()
    backend.give(plain_jobs(1))
    gathered(backend, lambda news: bool(news.groups))
    assert len(script.asked) == 2


def test_an_id_outside_the_vocabulary_never_leaves_us(start: Start, script: ScriptedSglang) -> None:
    backend = start()
    with pytest.raises(InputError, match="needs token ids from 0 to 19, got 3 to 20"):
        backend.give([Job(0, np.array([3, 20], np.int32), 4, 0, 8)])
    assert script.asked == []


def test_a_server_that_does_not_see_the_weights_goes_on_and_the_folder_is_named(
    start: Start, script: ScriptedSglang, tmp_path: Path
) -> None:
    script.refuses = "/update_weights_from_disk"
    backend = start()
    with pytest.raises(RunError, match=f"It has to see {tmp_path}/weights/server-0 under the same path"):
        gathered(backend, lambda news: False)
    assert script.calls[-1] == "/continue_generation"


def test_a_key_comes_from_the_environment_and_without_it_its_name_is_said(
    start: Start, script: ScriptedSglang, monkeypatch: pytest.MonkeyPatch
) -> None:
    script.key = "only-ours"
    with pytest.raises(RunError, match=r"got 401.*TRIMTAB_SGLANG_KEY"):
        gathered(start(), lambda news: False)
    monkeypatch.setenv("TRIMTAB_SGLANG_KEY", "only-ours")
    backend = start()
    backend.give(plain_jobs(1))
    assert gathered(backend, lambda news: bool(news.groups)).groups


IMPOSTOR = """#!{python}
import json, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
options = json.load(open(sys.argv[-1]))
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        text = json.dumps({{"weight_version": "another"}}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
    def log_message(self, *rest):
        pass
HTTPServer((options["host"], options["port"]), Handler).serve_forever()
"""


def test_a_started_server_gets_its_key_in_a_file_and_another_on_its_port_is_refused(
    models: list[Any], tmp_path: Path
) -> None:
    python = tmp_path / "python"
    python.write_text(IMPOSTOR.format(python=sys.executable))
    python.chmod(0o755)
    asked = rollout(engine="sglang-server", samples=4, sglang={"python": str(python), "options": {"tp-size": 2}})
    backend = ServersBackend(
        models[0].config, asked, stop=[0], hold=8, directory=tmp_path / "run", start_patience=LIMIT
    )
    try:
        backend.begin(named(models[0]).items(), 0)
        file = backend._private / "0" / "options.yaml"
        options = json.loads(file.read_text())
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(backend._private.stat().st_mode) == 0o700
        assert len(options["api-key"]) == 64
        assert (options["host"], options["tp-size"]) == ("127.0.0.1", 2)
        assert options["api-key"].encode() not in Path(f"/proc/{backend.pids[0]}/cmdline").read_bytes()
        assert json.loads((backend._private / "0/model/config.json").read_text())["eos_token_id"] is None
        with pytest.raises(RunError, match="got another process on its port"):
            gathered(backend, lambda news: False)
    finally:
        backend.close()
    assert not file.exists()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"precision": "int8"}, "fp32 or bf16, got int8"),
        ({"top_p": 0.9}, "rollout.top_k from 2 to 4096 where it cuts, got top_k None, top_p 0.9"),
        ({"top_k": 5000}, "got top_k 5000"),
        ({"top_k": 1}, "got top_k 1"),
        ({"servers": ()}, "rollout.sglang.python, the interpreter .* got neither. `make sglang-env`"),
        ({"servers": (), "sglang": {"python": "/nowhere/python"}}, "got /nowhere/python"),
        ({"servers": (), "sglang": {"python": sys.executable, "options": {"api-key": "x"}}}, "got api-key. Drop it"),
    ],
)
def test_what_sglang_cannot_do_is_refused_before_it_starts(
    models: list[Any], changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        check_run(models[0].config, rollout(**{"engine": "sglang-server", "servers": ("http://far:1",), **changes}))


@pytest.mark.parametrize(("backend", "said"), [("lockstep", "takes no seeds"), ("ray", "takes no seeds")])
def test_back_ends_that_promise_the_same_bits_refuse_it(
    models: list[Any], tmp_path: Path, backend: str, said: str
) -> None:
    config = Train.from_settings(
        {"backend": backend, "rollout": {"engine": "sglang-server", "servers": ["http://far:1"]}}
    )
    recipe = EngineRecipe(models[0].config, "float32", config.rollout, (0,))
    with pytest.raises(ConfigError, match=f"sglang-server needs backend local, got {backend}.*{said}"):
        backend_of(config, recipe, tmp_path)


def test_requests_leave_no_default_of_the_server_in_force() -> None:
    job = jobs(2)[1]
    asked = asked_of(job, [3], 90, 7)["sampling_params"]
    assert (asked["temperature"], asked["top_k"], asked["top_p"]) == (0.7, 8, 0.9)
    assert asked["max_new_tokens"] == 20  # a prompt of 70 in 90
    assert (asked["repetition_penalty"], asked["frequency_penalty"], asked["presence_penalty"], asked["min_p"]) == (
        1.0, 0.0, 0.0, 0.0,
    )  # fmt: skip
    assert not asked["ignore_eos"]  # SGLang would ignore the stop tokens too
    assert asked_of(job, [], 90, 7)["sampling_params"]["ignore_eos"]
    greedy = asked_of(Job(0, job.prompt, 4, 0, 8, Sampling(0.0)), [3], 90, 7)
    assert (greedy["sampling_params"]["temperature"], "return_sampling_mask" in greedy) == (0.0, False)
    assert asked_of(Job(0, job.prompt, 4, 0, 8, head="top-k", head_size=5), [3], 90, 7)["top_logprobs_num"] == 5


def test_what_both_engines_have_is_a_setting_of_rollouts_and_was_one_of_vllm() -> None:
    former = Rollout.from_settings({"vllm": {"longest": 300, "verify": 2, "tolerance": 0.5, "cache": 2.0}})
    assert former == Rollout(longest=300, verify=2, tolerance=0.5, vllm={"cache": 2.0})
    with pytest.raises(ConfigError, match=r"needs longest once, got 200 and vllm.longest 300"):
        Rollout.from_settings({"longest": 200, "vllm": {"longest": 300}})
