# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
# (the trainer is the framework's, which is not among the development packages)
"""What a GRPOTrainer of TRL's is measured by without being changed: `trainer.add_callback(Measure(trainer))`."""

from __future__ import annotations

import types
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import TrainerCallback

from trimtab.config.files import correction_from
from trimtab.core.correct import correct
from trimtab.plugins.metrics import PREFIX, as_floats, is_one_of_few

USUAL = ("geo-rs", "token-mis", "token-tis")
LEFT = ("kept_fraction", "weight/ess")
"""What each rule would leave."""


class Measure(TrainerCallback):
    """Logs the mismatch of sampler and trainer under `trimtab/…`, and what a few rules would keep. The loss is TRL's, to the bit.

    A batch without the sampler's log-probs, or whose loss never scores tokens (Liger's), is not measured. Whatever fails is said once.
    """

    def __init__(self, trainer: Any, rules: Sequence[str] = USUAL) -> None:
        self.rules = {name: correction_from(name, []) for name in ("off", *rules)}
        self._said = False
        inner, score = trainer._compute_loss, trainer._get_per_token_logps_and_entropies

        def compute_loss(this: Any, model: Any, inputs: dict[str, Any]) -> Any:
            seen: list[Tensor] = []

            def kept(*args: Any, **given: Any) -> Any:
                scored = score(*args, **given)
                seen.append(scored[0].detach())
                return scored

            this._get_per_token_logps_and_entropies = kept
            try:
                loss = inner(model, inputs)
            finally:
                this._get_per_token_logps_and_entropies = score
            self._measure(this, inputs, seen)
            return loss

        trainer._compute_loss = types.MethodType(compute_loss, trainer)

    def _measure(self, trainer: Any, inputs: dict[str, Any], seen: list[Tensor]) -> None:
        """Log one micro-batch; no failure reaches the training."""
        try:
            with torch.no_grad():
                missing = "" if seen else "its loss never scores tokens (Liger's does not)"
                missing = missing or (
                    "" if inputs.get("sampling_per_token_logps") is not None else "the sampler's log-probs are not kept"
                )
                if missing:
                    self._say(f"not measured: {missing}.")
                    return
                for name, value in as_floats(self._values(inputs, seen[0])).items():
                    trainer._metrics["train" if trainer.model.training else "eval"][name].append(value)
        except Exception as error:
            self._say(f"not measured: {type(error).__name__}: {error}")

    def _values(self, inputs: dict[str, Any], current: Tensor) -> dict[str, Tensor]:
        """The metrics of the gap, and what each rule leaves."""
        old = inputs.get("old_per_token_logps")
        mask = inputs["completion_mask"] * inputs.get("tool_mask", 1)
        batch = {
            "behavior": inputs["sampling_per_token_logps"],
            "proximal": current if old is None else old,
            "mask": mask.bool(),
        }
        found: dict[str, Tensor] = {}
        for name, rule in self.rules.items():
            metrics = correct(rule, **batch).metrics
            shown = [each for each in metrics if is_one_of_few(each)] if name == "off" else LEFT
            found |= {f"{PREFIX}{'' if name == 'off' else f'{name}/'}{each}": metrics[each] for each in shown}
        return found

    def _say(self, text: str) -> None:
        if not self._said:
            self._said = True
            warnings.warn(f"trimtab.plugins.trl.Measure: {text}", stacklevel=2)
