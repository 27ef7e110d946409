"""verl: how its files are known. What it reads and computes is in `dialect`."""

from trimtab.dialects.signature import Signature

SIGNATURE = Signature(
    name="verl",
    title="verl",
    roots=("actor_rollout_ref", "algorithm", "critic", "data", "reward_model", "trainer", "hydra", "ray_kwargs"),
    packages=("verl",),
    programs=r"verl\.\w.*|recipe\.[\w.]*main\w*|.*main_ppo(\.py)?",
    own_keys=r"actor_rollout_ref\..*|algorithm\.rollout_correction\..*",
)
