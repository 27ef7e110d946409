export USE_OPTIMIZED_MODEL=0
 # it isn't for every model

 python examples/vlm/grpo.py \
    --config examples/vlm/grpo.yaml \
    scheduler.type=ray \
    actor.eps_clip=0.25 \
    gconfig.n_samples=5 \
