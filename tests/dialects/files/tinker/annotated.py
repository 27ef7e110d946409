import asyncio

import chz

from tinker_cookbook.rl import train


@chz.chz
class CLIConfig:
    """What the command line can say."""

    learning_rate: float = 3e-5
    group_size: int = 8
    kl_penalty_coef: float = 0.0
    loss_fn: str = "ppo"
    loss_fn_config: dict | None = None


async def start(cli: CLIConfig) -> None:
    config = train.Config(
        learning_rate=cli.learning_rate,
        loss_fn=cli.loss_fn,
        loss_fn_config=cli.loss_fn_config,
        kl_penalty_coef=cli.kl_penalty_coef,
    )
    await train.main(config)


if __name__ == "__main__":
    asyncio.run(start(chz.entrypoint(CLIConfig)))
