"""From rewards to a gradient, padded and packed: an answer rejected or cut off has no vote, and both layouts agree."""

import torch

import trimtab

torch.manual_seed(0)
lengths, group = torch.tensor([8, 5, 7, 6, 8, 3]), torch.tensor([7, 7, 7, 4, 4, 4])  # three answers each to two prompts
rewards, mask, eos = torch.tensor([1.0, 0, 0, 1, 1, 0]), torch.arange(8) < lengths[:, None], 2
tokens = torch.randint(3, 100, (6, 8)).scatter(1, lengths[:, None] - 1, eos)
tokens[4, 7] = 50  # the fifth answer was cut off: its last token is no EOS
behavior = -2 * torch.rand(6, 8)  # log-probs from the engine that sampled
proximal = behavior + 0.05 * torch.randn(6, 8)  # the trainer's, at the start of the step
proximal[2] -= 0.3  # the third answer has drifted away and will be rejected
moved = 0.3 * torch.randn(6, 8)  # what the step has changed since
rule, shaping = trimtab.preset("geo-rs+token-mis", lower=0.95, upper=1.05), trimtab.Shaping(no_eos="zero")


def step(laid, **layout):
    """Loss and gradient in one layout; `laid` puts what is per token there."""
    current = (proximal + moved).requires_grad_()  # stands for the model's log-probs
    at = {"mask": laid(mask), "proximal": laid(proximal)} | layout
    out = trimtab.correct(rule, behavior=laid(behavior), **at)
    asked = {"mask": laid(mask), "kept": out.kept, "shaping": shaping} | layout
    ended = trimtab.ended(laid(tokens), laid(mask), eos, **layout)
    worth = trimtab.advantages(trimtab.Grpo(), rewards=rewards, group=group, ended=ended, **asked)
    clip = trimtab.Clip(low=0.2, high=0.28)
    found = trimtab.policy_loss(clip, current=laid(current), advantages=worth.advantages, correction=out, **at)
    found.loss.backward()
    return found.loss.item(), current.grad, worth


padded, gradient, worth = step(lambda x: x)
packed, same, _ = step(lambda x: x[mask], cu_seqlens=torch.cat([lengths.new_zeros(1), lengths.cumsum(0)]))
print(f"advantages {[round(row + 0.0, 3) for row in worth.rows.tolist()]}, votes {worth.votes.int().tolist()}")
print(f"loss {padded:.6f} padded, {packed:.6f} packed; gradients differ by at most {(gradient - same).abs().max():.1e}")
