"""The way to a GPU and back, without one: what is asked of torch, and in which order."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from trimtab.errors import ConfigError
from trimtab.train import devices
from trimtab.train.devices import device_of, sampler_gpu, to_device, to_host


class Told(Tensor):
    """A tensor that notes how it is moved, and stays where it is."""

    said: list[str]

    def pin_memory(self, *given: Any) -> Told:
        self.said.append("pin")
        return self

    def to(self, *given: Any, **named: Any) -> Told:
        self.said.append(f"to {given[0]}" + (" without waiting" if named.get("non_blocking") else ""))
        return self

    def copy_(self, source: Tensor, non_blocking: bool = False) -> Told:
        self.said.append("copy without waiting" if non_blocking else "copy")
        with torch._C.DisableTorchFunctionSubclass():
            Tensor.copy_(self, source)
        return self


class OnGpu(Tensor):
    """A tensor that says it lies on a GPU."""

    @property
    def is_cuda(self) -> bool:
        return True

    @property
    def device(self) -> torch.device:
        return torch.device("cuda", 1)


def told(said: list[str], values: Tensor) -> Told:
    made = values.as_subclass(Told)
    made.said = said
    return made


def test_what_goes_to_a_gpu_is_pinned_first_and_nobody_waits_for_it() -> None:
    said: list[str] = []
    to_device(told(said, torch.ones(2)), "cuda:1")
    assert said == ["pin", "to cuda:1 without waiting"]
    said.clear()
    to_device(told(said, torch.ones(2)), "meta")  # the control: only a GPU reads pinned memory by itself
    assert said == ["to meta"]


def test_tensors_of_a_gpu_come_home_together_into_pinned_memory_and_are_waited_for_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[str] = []
    plain = torch.empty

    def empty(*given: Any, pin_memory: bool = False, **named: Any) -> Tensor:
        said.append("pinned" if pin_memory else "pageable")
        return told(said, plain(*given, **named))

    monkeypatch.setattr(devices.torch, "empty", empty)
    monkeypatch.setattr(devices.torch.cuda, "synchronize", lambda device: said.append(f"wait for {device}"))
    given = [torch.arange(3.0).as_subclass(OnGpu), torch.arange(2).as_subclass(OnGpu)]
    found = to_host(given)
    assert said == ["pinned"] * 2 + ["copy without waiting"] * 2 + ["wait for cuda:1"]
    assert [each.tolist() for each in found] == [[0.0, 1.0, 2.0], [0, 1]]


def test_what_is_on_the_host_already_is_not_copied() -> None:
    given = torch.ones(3, requires_grad=True)
    (found,) = to_host([given])
    assert found.data_ptr() == given.data_ptr()
    assert not found.requires_grad


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Any:
    """So many are visible."""

    def see(count: int) -> None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        monkeypatch.setattr(devices.torch.cuda, "is_available", lambda: count > 0)
        monkeypatch.setattr(devices.torch.cuda, "device_count", lambda: count)

    return see


def test_a_setting_names_a_device_that_is_there(gpus: Any) -> None:
    gpus(0)
    assert device_of("auto") == device_of("cpu") == torch.device("cpu")
    with pytest.raises(ConfigError, match=r"rollout\.device needs a GPU that torch can use, got cuda and none here"):
        device_of("cuda", name="rollout.device")
    gpus(2)
    assert device_of("cpu") == torch.device("cpu")
    assert [str(device_of("auto", place=place)) for place in range(3)] == ["cuda:0", "cuda:1", "cuda:0"]
    assert str(device_of("cuda:1", place=0)) == "cuda:1"
    with pytest.raises(ConfigError, match="needs one of the 2 GPUs visible here, got cuda:2"):
        device_of("cuda:2")


def test_samplers_get_the_gpus_behind_the_learners_own(gpus: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    gpus(1)
    assert sampler_gpu(0) is None  # nothing to choose
    gpus(3)
    assert [sampler_gpu(number) for number in range(3)] == ["1", "2", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6,7")
    assert [sampler_gpu(number) for number in range(3)] == ["6", "7", "6"]
