python3 scripts/data.py --local_dir ~/data/gsm8k --clip 3
nohup python3 -m sglang.launch_server --model-path x --port 13141 > server.log 2>&1 &
until curl -sf http://127.0.0.1:13141/health > /dev/null; do sleep 5; done
python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo actor_rollout_ref.actor.clip_ratio_low=0.2 \
    actor_rollout_ref.actor.clip_ratio_high=0.24 && echo done || echo failed
