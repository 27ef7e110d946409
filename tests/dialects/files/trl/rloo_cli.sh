trl rloo --model_name_or_path m --output_dir o --num_generations 4 --epsilon 0.2 --beta 0.0 --use_vllm False
