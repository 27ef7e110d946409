"""Tinker and its cookbook: how their files are known. What they read and compute is in `dialect`."""

from trimtab.dialects.signature import Signature

SIGNATURE = Signature(
    name="tinker",
    title="Tinker",
    roots=("groups_per_batch", "dataset_builder", "kl_penalty_coef", "compute_post_kl", "behavior_if_log_dir_exists"),
    packages=("tinker_cookbook", "tinker"),
    programs=r"tinker(_cookbook)?[./]\w.*|tinker",
    own_keys=r"loss_fn_config(\..*)?|kl_penalty_coef|kl_discount_factor|compute_post_kl|behavior_if_log_dir_exists|groups_per_batch",
)
