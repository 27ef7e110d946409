#!/bin/bash
FLAGS="--hf-checkpoint /models/small --rollout-num-gpus 8"
echo "#!/bin/bash
python3 train.py $FLAGS --advantage-estimator grpo --eps-clip 0.1 --use-kl-loss --kl-loss-coef 0.02" > nightly.sh
sbatch nightly.sh
