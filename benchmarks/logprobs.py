"""Log-probs of chosen tokens: peak memory and time of several ways to the same numbers, forward and forward + backward.

    python benchmarks/logprobs.py            # vocabularies of 32k and 152k, 2048 tokens, hidden 896: about three minutes
    python benchmarks/logprobs.py --quick    # 32k and 512 tokens, once: about half a minute

Every measurement is a process of its own with one thread, and the ways take turns. Memory is the peak resident size of
that process (`ru_maxrss`) above what it was once inputs were made and libraries warm, so nothing can be missed: results,
gradients (545 MB of them the weight's own at 152k, whatever the way), buffers of the matrix library. The parent never
loads torch, because a child starts from its parent's peak. Time is CPU time of the process: with one thread it is the
time taken on an idle machine, and what other processes take of a busy one does not count. Each way must give the same
log-probs and gradients.

Two ways are TRL's and are measured where trl is installed: `selective_log_softmax`, which needs all logits, and the
function behind its chunked losses, which like ours does not.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

WIDTH = 896  # Qwen2.5-0.5B
PLAIN, LOGITS, TILES = "log_softmax().gather()", "log_probs_of", "selected_log_probs"
TRL_LOGITS, TRL_TILES = "TRL selective_log_softmax", "TRL chunked"
SUPPORT, MASK = "… over a support", "… over a large mask"
WAYS = (PLAIN, TRL_LOGITS, LOGITS, TRL_TILES, TILES, SUPPORT, MASK)
IDS = {SUPPORT: (64, 64), MASK: (1, 6000)}  # least and most of a token's support, its target among them


# ---- in the child: one way, once -----------------------------------------------------------------------------------


def way(name: str) -> Callable[..., Tensor]:
    """The function of hidden, weight and targets by that name; some take a support too."""
    if name == TRL_LOGITS:
        import peers

        shipped = peers.trl().utils.selective_log_softmax
        return lambda hidden, weight, targets: shipped(hidden @ weight.T, targets)
    if name == TRL_TILES:
        import peers

        size = peers.trl().utils._CHUNKED_LOGPROB_CHUNK_SIZE
        from trl.kernels import ChunkedLogProbFunction

        return lambda hidden, weight, targets: ChunkedLogProbFunction.apply(
            hidden, weight, None, targets, 1.0, size, None, 1.0, ()
        )[0]
    from trimtab.log_probs.public import log_probs_of, selected_log_probs

    if name in IDS:
        return lambda hidden, weight, targets, support: (
            selected_log_probs(hidden, weight, targets, support=support).log_probs
        )
    return {
        PLAIN: lambda hidden, weight, targets: (
            (hidden @ weight.T).log_softmax(-1).gather(-1, targets.unsqueeze(-1)).squeeze(-1)
        ),
        LOGITS: lambda hidden, weight, targets: log_probs_of(hidden @ weight.T, targets).log_probs,
        TILES: lambda hidden, weight, targets: selected_log_probs(hidden, weight, targets).log_probs,
    }[name]


def support(name: str, targets: Tensor, size: int) -> dict[str, Any]:
    """What the way takes beside its inputs: ids of each token's own, sorted, as engines send them."""
    import torch

    from trimtab.core.head import Head

    if name not in IDS:
        return {}
    (least, largest), generator, rows = IDS[name], torch.Generator().manual_seed(0), []
    for target in targets:
        count = int(torch.randint(least, largest + 1, (), generator=generator))
        others = torch.randint(size, (count - 1,), generator=generator)
        rows.append(torch.cat([target.view(1), others]).unique())
    offsets = torch.tensor([0, *(len(row) for row in rows)]).cumsum(0)
    return {"support": Head(torch.cat(rows).int(), offsets=offsets)}


def measured(name: str, vocabulary: int, tokens: int) -> dict[str, Any]:
    """Seconds and megabytes of one way, after forward and after backward, and what it found."""
    import torch

    torch.set_num_threads(1)
    try:
        function = way(name)
    except ImportError as error:
        return {"missing": str(error)}
    torch.manual_seed(0)
    warm = torch.randn(64, WIDTH, requires_grad=True)
    zeros = torch.zeros(64, dtype=torch.long)
    function(warm, torch.randn(512, WIDTH, requires_grad=True), zeros, **support(name, zeros, 512)).sum().backward()
    hidden = torch.randn(tokens, WIDTH).requires_grad_()
    weight = torch.empty(vocabulary, WIDTH).normal_(std=0.05).requires_grad_()
    targets, pull = torch.randint(vocabulary, (tokens,)), torch.randn(tokens)
    about = support(name, targets, vocabulary)
    before, start = peak(), time.process_time()
    log_probs = function(hidden, weight, targets, **about)
    middle, forward = time.process_time(), peak()
    log_probs.backward(pull)
    end, both = time.process_time(), peak()
    assert hidden.grad is not None
    assert weight.grad is not None
    found = [log_probs.sum().item(), hidden.grad.norm().item(), weight.grad.norm().item()]
    return {"time": [middle - start, end - start], "memory": [forward - before, both - before], "found": found}


def peak() -> float:
    """The most memory this process has held so far, in MB."""
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return held / 1e6 if sys.platform == "darwin" else held * 1024 / 1e6


# ---- in the parent: turns, and a table -----------------------------------------------------------------------------


def turn(name: str, vocabulary: int, tokens: int) -> dict[str, Any]:
    """One measurement in a process of its own."""
    order = json.dumps([name, vocabulary, tokens])
    single = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, __file__, "--child", order],
        env=os.environ | single,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{name} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def table(vocabulary: int, tokens: int, repeats: int) -> dict[str, list[dict[str, Any]]]:
    """Measure every way in turn, print the figures, return them."""
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in WAYS}
    for _ in range(repeats):
        for name in WAYS:
            result = turn(name, vocabulary, tokens)
            if "missing" in result:
                if not runs[name]:
                    print(f"({name} left out: {result['missing']})")
                continue
            runs[name].append(result)
    runs = {name: results for name, results in runs.items() if results}
    for name, results in runs.items():
        if name in IDS:  # other numbers, held to a mask over all logits by tests/log_probs/test_head.py
            continue
        for mine, right in zip(results[0]["found"], runs[PLAIN][0]["found"], strict=True):
            assert abs(mine - right) <= 1e-4 * abs(right), f"{name} gives {mine}, {PLAIN} gives {right}"
    print(
        f"\nvocabulary {vocabulary:,}, {tokens} tokens, hidden {WIDTH}, float32, one thread, turns of each: {repeats}"
    )
    print(f"{'':28}{'forward':^46}{'forward + backward':^46}")
    print(f"{'':28}" + f"{'s min / median':>17}{'×plain':>9}{'peak MB':>10}{'less':>8}  " * 2)
    for name, results in runs.items():
        print(f"{name:28}" + "".join(cells(results, runs[PLAIN], part) for part in (0, 1)))
    return runs


def cells(results: list[dict[str, Any]], plain: list[dict[str, Any]], part: int) -> str:
    """Time with its ratio to the plain way, peak memory with how many times less it is."""
    times = [each["time"][part] for each in results]
    span = f"{min(times):.2f} / {statistics.median(times):.2f}"
    ratio, less = fastest(results, part) / fastest(plain, part), most(plain, part) / most(results, part)
    return f"{span:>17}{ratio:>8.2f}×{most(results, part):>10.0f}{less:>7.1f}×  "


def fastest(results: list[dict[str, Any]], part: int) -> float:
    """The least time of all turns: what others did to the machine can only add."""
    return min(each["time"][part] for each in results)


def most(results: list[dict[str, Any]], part: int) -> float:
    """The most memory of all turns, at least the megabyte below which the measure means nothing."""
    return max(1.0, *(each["memory"][part] for each in results))


def verdict(runs: dict[str, list[dict[str, Any]]]) -> None:
    """Say of each target whether it was met."""
    plain, tiles = runs[PLAIN], runs[TILES]
    less = most(plain, 1) / most(tiles, 1)
    forward, both = (fastest(tiles, part) / fastest(plain, part) for part in (0, 1))
    for met, text in (
        (less >= 4.0, f"peak memory, forward + backward: {less:.1f}× less than plain (target: at least 4×)"),
        (forward <= 1.0, f"time, forward: {forward:.2f}× plain (target: at most 1×)"),
        (both <= 1.4, f"time, forward + backward: {both:.2f}× plain (target: at most 1.4×)"),
    ):
        print(f"  {'met   ' if met else 'MISSED'} {text}")


def verdict_of_supports(runs: dict[str, list[dict[str, Any]]]) -> None:
    """Say what a support costs: time, and memory beside that of all logits."""
    for name, (_, large) in IDS.items():
        forward, both = (fastest(runs[name], part) / fastest(runs[TILES], part) for part in (0, 1))
        share = most(runs[name], 0) / most(runs[PLAIN], 0)
        for met, text in (
            (forward <= 1.15, f"time, forward: {forward:.2f}× without (target: at most 1.15×)"),
            (both <= 1.15, f"time, forward + backward: {both:.2f}× without (target: at most 1.15×)"),
            (share <= 0.5, f"peak memory, forward: {share:.2f}× plain (no tensor [tokens, vocabulary]: at most half)"),
        ):
            print(f"  {'met   ' if met else 'MISSED'} up to {large} ids, {text}")


def main() -> None:
    """Measure both vocabularies, or one of them quickly."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="32k and 512 tokens, one turn")
    parser.add_argument("--repeats", type=int, help="turns of each way (default: 2 at 32k, 1 at 152k)")
    parser.add_argument("--vocabulary", type=int, help="this one only")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measured(*json.loads(options.child))))
        return
    sizes = [(32_000, 512, 1)] if options.quick else [(32_000, 2048, 2), (151_936, 2048, 1)]
    if options.vocabulary:
        sizes = [(options.vocabulary, 512 if options.quick else 2048, 1)]
    for vocabulary, tokens, repeats in sizes:
        runs = table(vocabulary, tokens, options.repeats or repeats)
        verdict_of_supports(runs)
        if vocabulary > 100_000:  # the targets speak of this size
            verdict(runs)


if __name__ == "__main__":
    main()
