"""slime: what it reads, what it computes, what is surprising about it."""

from trimtab.dialects.dialect import Dialect, Version
from trimtab.dialects.slime.advantage import advantage_of
from trimtab.dialects.slime.correction import candidates, correction_of
from trimtab.dialects.slime.examples import EXAMPLES
from trimtab.dialects.slime.hints import HINTS
from trimtab.dialects.slime.keys import KEYS
from trimtab.dialects.slime.loss import loss_of
from trimtab.dialects.slime.remarks import REMARKS

DIALECT = Dialect(
    name="slime",
    title="slime",
    version="624b824a",
    versions=(
        Version("before use_rs", ("mis_level", "mis_mode", "mis_lower_bound", "mis_upper_bound", "mis_veto_threshold")),
        Version("after 624b824a, and vime", ("use_score_centering", "score_centering_top_k")),
    ),
    keys=KEYS,
    correction_of=correction_of,
    loss_of=loss_of,
    advantage_of=advantage_of,
    remarks=REMARKS,
    roots=("rollout_batch_size", "n_samples_per_prompt", "hf_checkpoint", "advantage_estimator", "global_batch_size"),
    packages=("slime", "vime"),
    programs=r"(slime|vime)\.\w.*|command_utils.*",
    own_keys=r"rollout_max_response_len|rollout_function_path|custom_rm_path|rollout_num_gpus(_per_engine)?|ref_load|hf_checkpoint"
    r"|sglang_mem_fraction_static|use_m?opd|mopd_\w+|custom_tis_function_path",
    apart=("A NaN log-prob spreads to the loss; ours takes the token as never trained.",),
    candidates=candidates,
    hints=HINTS,
    examples=EXAMPLES,
)

__all__ = ["DIALECT"]
