python3 -m openrlhf.cli.train_ppo_ray \
    --actor.model_name_or_path Qwen/Qwen3-4B-Thinking-2507 \
    --train.async_enable \
    --train.async_queue_size 2 \
    --algo.advantage.estimator reinforce_baseline \
    --algo.advantage.is_correction_level token \
    --algo.advantage.is_correction_threshold 0.5 5.0 \
    $@
