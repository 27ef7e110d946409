"""What readers are shown of a metric: its title, how to read it and on which scale, said once for every page and table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trimtab.report.draw.axis import FREE, FROM_ZERO, LOG, SHARE, Scale


@dataclass(frozen=True)
class ShownMetric:
    """A metric as readers know it."""

    panel: str
    """The chart of a report that shows it."""
    title: str
    """Over a chart of it alone."""
    note: str = ""
    """How to read that chart, in one sentence; empty where there is none."""
    scale: Scale = FREE
    word: str = ""
    """Over a number of it alone; empty where none is shown."""
    called: str = ""
    """In a sentence; empty: as its title."""

    @property
    def name(self) -> str:
        """How a sentence calls it, with a capital."""
        return self.called or self.title


METRICS: Mapping[str, ShownMetric] = {
    "eval/accuracy": ShownMetric("accuracy", "Held-out accuracy", "By the learner's own weights.", SHARE),
    "rollout/accuracy": ShownMetric("accuracy", "Accuracy of the rollouts", "Lags behind by their staleness.", SHARE),
    "drift/k3": ShownMetric(
        "mismatch",
        "Mismatch KL (k3)",
        "Target against behavior. Before a collapse it is high more often than it jumps.",
        LOG,
        word="mismatch KL",
        called="Mismatch KL",
    ),
    "policy/k3": ShownMetric("mismatch", "KL of the update", scale=LOG),
    "train/grad_norm": ShownMetric(
        "gradient",
        "Gradient norm, before clipping",
        "Often moves only when accuracy does.",
        LOG,
        called="Gradient norm before clipping",
    ),
    "kept_fraction": ShownMetric("kept", "Kept fraction", "Tokens left after every gate.", SHARE, word="kept"),
    "weight/ess": ShownMetric(
        "ess",
        "Effective sample size",
        "Share of the batch that the weights leave; rejected tokens count as weight 0.",
        SHARE,
        word="ESS",
    ),
    "policy/entropy": ShownMetric("entropy", "Entropy", "Nats per token.", FROM_ZERO),
    "staleness/oldest_mean": ShownMetric(
        "staleness", "Staleness", "Age of the oldest token, mean.", FROM_ZERO, word="staleness"
    ),
    "eval/reward": ShownMetric("reward", "Held-out reward", "By the learner's own weights."),
    "rollout/reward": ShownMetric(
        "reward", "Reward", "Mean over the responses of the step.", called="Reward of the rollouts"
    ),
    "rollout/length": ShownMetric("length", "Response length", "Mean tokens per response.", FROM_ZERO),
    "rollout/truncated": ShownMetric("finish", "Share of truncated responses", scale=FROM_ZERO),
    "train/loss": ShownMetric("loss", "Loss", "Not comparable between steps: its data changes."),
    "train/lr": ShownMetric("lr", "Learning rate", "Of the optimiser.", FROM_ZERO),
    "throughput/samples": ShownMetric(
        "throughput", "Samples per second", "Trained samples over wall time.", FROM_ZERO, word="samples/s"
    ),
    "throughput/tokens": ShownMetric("tokens", "Tokens per second", "Trained tokens over wall time.", FROM_ZERO),
}
