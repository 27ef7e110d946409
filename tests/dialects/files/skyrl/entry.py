from skyrl.train.config import SkyRLTrainConfig
from skyrl.train.entrypoints.main_base import BasePPOExp


def main():
    cfg = SkyRLTrainConfig()
    cfg.trainer.algorithm.advantage_estimator = "grpo"
    cfg.trainer.algorithm.off_policy_correction.tis_ratio_type = "token"
    cfg.trainer.algorithm.off_policy_correction.token_tis_ratio_clip_high = 1.0 + 1.5
    BasePPOExp(cfg).run()
