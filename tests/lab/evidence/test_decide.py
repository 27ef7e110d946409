"""Deciding: seeds are added look by look to what is open, resumed after an end, and stopped by the budget."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.lab.evidence.made import arms, claim, lab, run
from tests.lab.mini import OVERRIDES, SilentDisplay
from trimtab.errors import ConfigError, RecordError, UnknownNameError
from trimtab.lab.evidence import decide
from trimtab.lab.evidence.claim import Arm, ClaimTable, ClaimTask, arm_cell, chosen_claims, shipped_claims
from trimtab.lab.evidence.decide import (
    ClaimPlan,
    budget_seconds,
    claim_finding,
    claim_findings,
    decide_claims,
    kept_folder,
)
from trimtab.lab.lab import CellList, run_cells
from trimtab.lab.results import CellResult, LabResults, empty_results, read_results, write_results
from trimtab.lab.scenario import base_settings

TASKS = {"chain": ClaimTask(), "other": ClaimTask(train={"task": {"options": {"size": 3}}})}
LATE = {"k3-rs": 0.9, "off": 0.2, "geo-rs": 0.9}


class Told(SilentDisplay):
    """Remembers the looks."""

    def __init__(self) -> None:
        self.looks: list[tuple[str, int, int]] = []

    def look(self, task: str, seeds: int, claims: int) -> None:
        self.looks.append((task, seeds, claims))


class MadeUp:
    """In place of training: cells with made-up curves, and a count of them; each takes a second of a clock of its own."""

    def __init__(self, noisy: str | None = None) -> None:
        self.now, self.ran, self.noisy = 0.0, list[str](), noisy

    def clock(self) -> float:
        return self.now

    def run_cells(self, given: CellList, path: Path, **told: Any) -> LabResults:
        path.mkdir(parents=True, exist_ok=True)
        earlier = read_results(path).entries if (path / "lab.json").exists() else ()
        entries = {each.name: each for each in earlier}
        for cell in given.cells:
            if cell.name not in entries and told["may_start"]():
                self.now += 1
                self.ran.append(cell.name)
                entries[cell.name] = self.cell(cell.scenario, cell.correction, cell.seed, cell.name)
        results = empty_results(given.cells, given.meanings, given.base, given.steps)
        results = results.but(entries=tuple(entries.values()))
        write_results(path, results)
        return results

    def cell(self, scenario: str, correction: str, seed: int, name: str) -> CellResult:
        late = LATE[correction] + 0.003 * (seed % 5) + 0.01 * (seed % 3) * (correction == "off")
        if correction == self.noisy:
            late = 0.9 if seed % 2 else 0.05
        return run(scenario, correction, seed, late, name=name)


def plan(*claims: Any, steps: int = 400) -> ClaimPlan:
    return ClaimPlan(ClaimTable(tasks=TASKS, claims=claims), steps)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> MadeUp:
    found = MadeUp()
    monkeypatch.setattr(decide, "run_cells", found.run_cells)
    return found


def test_a_clear_claim_takes_one_look_of_eight_seeds_and_a_second_call_runs_nothing(made: MadeUp, tmp_path: Path):
    told = Told()
    (found,) = decide_claims(plan(claim()), tmp_path, display=told)
    assert (found.decision.outcome, found.decision.seeds) == ("confirmed", 8)
    assert told.looks == [("chain", 8, 1)]
    assert len(made.ran) == 8 * 3  # two arms and the control
    assert made.ran[:3] == ["control--off--seed-0", "stale--k3-rs--seed-0", "stale--off--seed-0"]
    (again,) = decide_claims(plan(claim()), tmp_path, display=told)
    assert again == found
    assert len(made.ran) == 24


def test_only_what_is_open_gets_more_seeds_up_to_the_last_look(made: MadeUp, tmp_path: Path):
    made.noisy = "geo-rs"
    told = Told()
    noisy = claim(id="noisy", first=Arm(correction="geo-rs"), second=Arm(correction="k3-rs"), expected="same")
    clear, noise = decide_claims(plan(claim(), noisy), tmp_path, display=told)
    assert [seeds for _, seeds, _ in told.looks] == [8, 12, 16, 24, 32][: len(told.looks)]
    assert [count for _, _, count in told.looks][:2] == [2, 1]
    assert (clear.decision.outcome, clear.decision.seeds) == (
        "confirmed",
        8,
    )  # decided at its first look, whatever cells came later
    assert noise.decision.seeds > 8
    assert f"stale--off--seed-{noise.decision.seeds - 1}" not in made.ran


def test_the_budget_stops_it_between_cells_and_the_next_call_goes_on(made: MadeUp, tmp_path: Path):
    (found,) = decide_claims(plan(claim()), tmp_path, budget=10, clock=made.clock)
    assert len(made.ran) == 10
    assert found.decision.outcome == "not decided"
    assert "3 of at least 8 seeds" in found.decision.reason
    (found,) = decide_claims(plan(claim()), tmp_path, clock=made.clock)
    assert found.decision.outcome == "confirmed"
    assert len(made.ran) == len(set(made.ran)) == 24


def test_a_budget_for_one_of_two_claims_decides_one_and_the_arm_they_share_runs_once(made: MadeUp, tmp_path: Path):
    second = claim(id="second", first=Arm(correction="geo-rs"))
    one, other = decide_claims(plan(claim(), second), tmp_path, budget=24, clock=made.clock)
    # 8 seeds of two arms and the control are 24 cells; seed by seed over both claims they would be 6 seeds of each
    assert (one.decision.outcome, one.decision.seeds) == ("confirmed", 8)
    assert (other.decision.outcome, other.decision.seeds) == ("not decided", 0)
    decide_claims(plan(claim(), second), tmp_path, budget=8, clock=made.clock)
    assert made.ran[24:] == [f"stale--geo-rs--seed-{seed}" for seed in range(8)]


def test_a_claim_with_a_fault_is_left_and_does_not_go_round_for_ever(
    made: MadeUp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    cell = made.cell
    monkeypatch.setattr(made, "cell", lambda s, c, seed, name: cell(s, c, min(seed, 3), name).but(seed=seed))
    (found,) = decide_claims(plan(claim()), tmp_path)
    assert found.decision.outcome == "not decided"
    assert "The seed is lost" in found.decision.reason
    assert len(made.ran) == 24


def test_a_cell_that_failed_is_tried_once_more_by_the_next_call(
    made: MadeUp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    run, calls = made.run_cells, list[int]()

    def failing(given: CellList, path: Path, **told: Any) -> LabResults:
        """Seed 2 fails in the first call; what failed is not done, so a later call runs it again."""
        calls.append(len(given.cells))
        if (path / "lab.json").exists():
            before = read_results(path)
            whole = before.but(entries=tuple(each for each in before.entries if each.status == "done"))
            write_results(path, whole)
        whole = run(given, path, **told)
        if len(calls) == 1:
            lost = {"status": "failed", "message": "no disk", "verdict": None}
            whole = whole.but(entries=tuple(each.but(**lost) if each.seed == 2 else each for each in whole.entries))
            write_results(path, whole)
        return whole

    monkeypatch.setattr(decide, "run_cells", failing)
    (found,) = decide_claims(plan(claim()), tmp_path)
    assert "Seed 2 is lost" in found.decision.reason
    assert len(calls) == 1
    (found,) = decide_claims(plan(claim()), tmp_path)
    assert found.decision.outcome == "confirmed"
    assert len(calls) == 2


def test_tasks_are_labs_of_their_own_and_are_never_pooled(made: MadeUp, tmp_path: Path):
    one, other = decide_claims(plan(claim(), claim(id="there", task="other")), tmp_path)
    assert {each.name for each in tmp_path.iterdir()} == {"chain", "other"}
    assert (one.decision.seeds, other.decision.seeds) == (8, 8)
    assert read_results(tmp_path / "other").base["task"]["options"] == {"size": 3}


def test_a_task_may_say_how_long_its_runs_are_and_a_plan_may_say_otherwise(made: MadeUp, tmp_path: Path):
    table = ClaimTable(tasks=TASKS | {"short": ClaimTask(steps=250)}, claims=(claim(), claim(id="brief", task="short")))
    decide_claims(ClaimPlan(table), tmp_path)
    assert [read_results(tmp_path / task).steps for task in ("chain", "short")] == [400, 250]
    assert {each.config.steps for each in ClaimPlan(table).cells("short", {"brief": 1}).cells} == {250}
    assert {each.config.steps for each in ClaimPlan(table, 30).cells("short", {"brief": 1}).cells} == {30}
    with pytest.raises(RecordError, match=r"short needs a lab of 300 steps with these settings, got one of 250 steps"):
        claim_findings(ClaimPlan(ClaimTable(tasks={"short": ClaimTask(steps=300)}, claims=table.claims[1:])), tmp_path)


def test_a_claim_that_needs_what_is_missing_is_listed_and_not_run(made: MadeUp, tmp_path: Path):
    (found,) = decide_claims(plan(claim(needs="a moon")), tmp_path)
    assert (found.decision.outcome, found.decision.reason) == ("not decided", "needs a moon")
    assert made.ran == []


def test_a_folder_of_other_settings_is_refused(made: MadeUp, tmp_path: Path):
    decide_claims(plan(claim()), tmp_path)
    with pytest.raises(RecordError, match=r"a lab of 200 steps with these settings, got one of 400 steps"):
        claim_findings(plan(claim(), steps=200), tmp_path)


@pytest.mark.parametrize(("text", "seconds"), [("2h", 7200), ("90m", 5400), ("1h30m", 5400), ("45s", 45)])
def test_budgets_are_read(text: str, seconds: float):
    assert budget_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "2", "h", "two hours", "1m2h"])
def test_other_budgets_are_refused(text: str):
    with pytest.raises(ConfigError, match="Write 2h, 90m or 1h30m"):
        budget_seconds(text)


def test_every_shipped_claim_that_needs_nothing_has_two_cells_that_can_be_built():
    table = shipped_claims()
    whole = ClaimPlan(table, 400)
    tasks = {each.task for each in table.claims}
    assert tasks >= {"chain-160", "chain-250", "sort", "ledger"}
    for task in tasks:
        ids = {each.id: 1 for each in table.claims if each.task == task and each.needs is None}
        cells = whole.cells(task, ids).cells
        assert len({each.fingerprint for each in cells}) == len(cells) >= 3


def test_an_arm_may_write_out_a_correction_that_no_preset_is():
    turns = Arm(correction="my turns", rule={"gates": [{"metric": "k3", "level": "segment", "upper": 0.01}]})
    ours, preset = (arm_cell(each, 0, base_settings(), 3) for each in (turns, Arm(correction="k3-rs")))
    assert (ours.correction, ours.name) == ("my turns", "stale--my_turns--seed-0")
    assert [gate.level for gate in ours.config.correction.gates] == ["segment"]
    assert ours.config.but(correction=preset.config.correction) == preset.config
    with pytest.raises(ConfigError, match="level"):
        arm_cell(Arm(correction="wrong", rule={"gates": [{"metric": "k3", "level": "turn", "upper": 0.01}]}), 0, {}, 3)


def test_claims_are_chosen_by_id_or_from_a_file(tmp_path: Path):
    file = tmp_path / "mine.yaml"
    file.write_text(
        "claims:\n- {id: mine, text: t, source: s, expected: same, first: {correction: icepop}, second: {correction: 'off'}}\n"
    )
    assert [each.id for each in chosen_claims(["k3-rs-beats-off", str(file)]).claims] == ["k3-rs-beats-off", "mine"]
    with pytest.raises(UnknownNameError, match="k3-rs-beats-off"):
        chosen_claims(["k3-rs-beats-of"])
    file.write_text(file.read_text().replace("'off'", "icepop"))
    with pytest.raises(ConfigError, match="needs two arms, got 'icepop' twice"):
        chosen_claims([str(file)])


def test_real_cells_of_both_arms_share_start_and_prompts_and_other_seeds_do_not(tmp_path: Path):
    tiny = ClaimPlan(ClaimTable(tasks=TASKS, claims=(claim(),)), 3, (*OVERRIDES, "record.rollouts=0.25"))
    given = tiny.cells("chain", {"made-up": 2})
    stale = [each for each in given.cells if each.scenario == "stale"]
    made = run_cells(CellList(stale, given.meanings, given.base, 3), tmp_path, jobs=1)
    by_name = {each.name: each.pairing for each in made.entries}
    one, other, next_seed = (by_name[f"stale--{name}"] for name in ("off--seed-0", "k3-rs--seed-0", "off--seed-1"))
    assert one is not None
    assert one == other
    assert next_seed is not None
    assert one.start != next_seed.start
    assert one.prompts != next_seed.prompts


def test_the_cells_that_a_clone_keeps_are_known_and_those_of_other_settings_are_not(tmp_path: Path):
    one = chosen_claims(["k3-rs-beats-off"])
    kept = kept_folder()
    assert kept is not None
    (known,) = claim_findings(ClaimPlan(one), tmp_path, kept=kept)
    assert (known.decision.outcome, known.decision.seeds) == ("confirmed", 8)
    (longer,) = claim_findings(ClaimPlan(one, steps=999), tmp_path, kept=kept)
    assert longer.decision.seeds == 0
    (absent,) = claim_findings(ClaimPlan(one), tmp_path)
    assert absent.decision.seeds == 0


def test_seeds_of_two_labs_count_together_each_pair_from_the_first_that_has_it():
    first, second = arms(12)
    early, late = lab(first[:8], second[:8]), lab(first[6:], second[6:])
    assert claim_finding(claim(), early, late).decision.seeds == 12
    lonely = lab(first[8:], second[9:])  # of seed 8 it has one arm
    found = claim_finding(claim(), early, lonely)
    assert found.decision.seeds == 8
