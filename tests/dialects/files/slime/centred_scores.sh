python3 train.py --hf-checkpoint m --advantage-estimator grpo --disable-grpo-std-normalization --pg-loss-type reinforce \
  --calculate-per-token-loss --use-score-centering --score-centering-top-k 64 --use-tis
