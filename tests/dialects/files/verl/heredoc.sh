cat <<'END'
Isn't this a text with "odd quotes, an apostrophe ' and $(danger)?
END
cat <<-END > notes.txt
	it's indented by a tab
	END
read -r -d '' EXTRA <<END
algorithm.adv_estimator=grpo algorithm.norm_adv_by_std_in_grpo=False
END
python3 -m verl.trainer.main_ppo $EXTRA actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-mean
