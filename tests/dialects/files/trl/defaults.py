from dataclasses import dataclass, field

from trl import GRPOConfig, GRPOTrainer, ModelConfig, ScriptArguments, TrlParser


@dataclass
class GRPOScriptArguments(ScriptArguments):
    reward_funcs: list[str] | None = field(default=None, metadata={"help": "which rewards"})


def main(script_args, training_args, model_args):
    GRPOTrainer(model=model_args.model_name_or_path, args=training_args)


parser = TrlParser((GRPOScriptArguments, GRPOConfig, ModelConfig))
