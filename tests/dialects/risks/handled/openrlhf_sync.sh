python3 -m openrlhf.cli.train_ppo_ray \
    --actor.model_name_or_path Qwen/Qwen2.5-7B \
    --algo.advantage.estimator reinforce_baseline \
    --actor.eps_clip_low_high 0.2 0.28 \
    $@
