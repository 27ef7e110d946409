python3 -m areal.launcher.local examples/math/gsm8k_rl.py --config examples/math/gsm8k_grpo.yaml \
    actor.eps_clip=0.3 actor.use_decoupled_loss=true \
    actor.rejection_sampling.level=token actor.rejection_sampling.action=mask actor.rejection_sampling.upper=4
