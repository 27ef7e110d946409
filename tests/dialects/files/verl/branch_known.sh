MODE=async
if [ "$MODE" == "async" ]; then
    LEVEL=token
elif [[ $MODE == sync* ]]; then
    LEVEL=sequence
else
    LEVEL=null
fi
case "$MODE" in
    sync|both) CAP=9 ;;
    a*) CAP=3 ;;
    *) CAP=1 ;;
esac
python3 -m verl.trainer.main_ppo algorithm.rollout_correction.rollout_is=$LEVEL \
    algorithm.rollout_correction.rollout_is_threshold=$CAP
