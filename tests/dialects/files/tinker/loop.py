"""A loop of one's own."""
import asyncio

import tinker
from tinker import types


async def main():
    service = tinker.ServiceClient()
    client = await service.create_lora_training_client_async(base_model="Qwen/Qwen3-4B-Instruct-2507", rank=32)
    for _ in range(100):
        data = await sample(client)
        future = await client.forward_backward_async(
            data, loss_fn="cispo", loss_fn_config={"clip_low_threshold": 0.0, "clip_high_threshold": 4.0}
        )
        await client.optim_step_async(types.AdamParams(learning_rate=4e-5))
        await future.result_async()


if __name__ == "__main__":
    asyncio.run(main())
