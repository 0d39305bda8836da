"""Weights on the host: bitwise the results of resident ones, two blocks on the device, copied ahead."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from foxhunt_ray.config.schema import ModelConfig, OptimizerConfig
from foxhunt_ray.models import Forecaster, build_model
from foxhunt_ray.train.checkpoint import TrainState, load_checkpoint, save_checkpoint
from foxhunt_ray.train.optimizer import build_optimizer, clip_gradients

OPTIMIZER = OptimizerConfig(lr=1e-2, weight_decay=0.1)
SLEEP = 1_000_000_000  # cycles of a GPU, about half a second


def forecaster(offload: str, *, device: str = "cpu", seed: int = 0, **changes: Any) -> Forecaster:
    torch.manual_seed(seed)
    sizes = {"d_model": 16, "n_layer": 3, "d_state": 8, "headdim": 8, "offload": offload, **changes}
    return build_model(ModelConfig(**sizes), n_features=5, n_targets=2, device=device)


def windows(seed: int = 1, batch: int = 6, length: int = 20) -> Tensor:
    return torch.randn(batch, length, 5, generator=torch.Generator().manual_seed(seed))


def trained(model: Forecaster, optimizer: torch.optim.Optimizer, steps: range, device: str = "cpu"):
    """The losses of the steps, each on a batch of its own."""
    losses = []
    for step in steps:
        x = windows(step).to(device)
        loss = (model(x) - x[:, -1, :2]).pow(2).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        clip_gradients(model, 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


def assert_same(left: dict[str, Tensor], right: dict[str, Tensor]) -> None:
    assert list(left) == list(right)
    assert [name for name in left if not torch.equal(left[name], right[name])] == []


def gradients(model: Forecaster) -> dict[str, Tensor]:
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("dropout", [0.0, 0.2])
@pytest.mark.parametrize("n_layer", [1, 2, 3, 4, 5])
def test_training_is_bitwise_that_of_resident_weights(n_layer: int, dropout: float) -> None:
    results = []
    for offload in ("none", "layers"):
        model = forecaster(offload, n_layer=n_layer, dropout=dropout)
        torch.manual_seed(7)
        losses = trained(model, build_optimizer(model, OPTIMIZER), range(6))
        results.append((losses, model.state_dict(), torch.rand(4)))
    (losses, weights, draws), (our_losses, our_weights, our_draws) = results
    assert our_losses == losses and len(set(losses)) == 6
    assert_same(our_weights, weights)
    assert torch.equal(our_draws, draws)  # computing blocks again leaves the random stream where it was


@pytest.mark.parametrize("n_layer", [1, 2, 4])
def test_gradients_add_up_over_backward_passes_as_those_of_resident_weights(n_layer: int) -> None:
    found = []
    for offload in ("none", "layers"):
        model = forecaster(offload, n_layer=n_layer, dropout=0.2)
        torch.manual_seed(7)
        for seed in (1, 2):
            x = windows(seed).requires_grad_()
            model(x).pow(2).sum().backward()
        assert x.grad is not None
        found.append(gradients(model) | {"features": x.grad})
        assert len(found[-1]) == 1 + len(list(model.parameters()))
    assert_same(found[1], found[0])


def test_one_backward_pass_through_two_forward_passes_and_an_evaluation_between() -> None:
    found = []
    for offload in ("none", "layers"):
        model = forecaster(offload, n_layer=4, dropout=0.2)
        torch.manual_seed(7)
        loss = model(windows(1)).pow(2).sum()
        with torch.no_grad():
            model(windows(2, batch=2))
        (loss + model(windows(3)).pow(2).sum()).backward()
        found.append(gradients(model))
    assert_same(found[1], found[0])


@pytest.mark.parametrize("n_layer", [1, 2, 4])
def test_evaluation_is_bitwise_that_of_resident_weights(n_layer: int) -> None:
    resident, ours = (forecaster(o, n_layer=n_layer, dropout=0.5).eval() for o in ("none", "layers"))
    for length in (1, 20, 65):
        with torch.no_grad():
            assert torch.equal(ours(windows(length=length)), resident(windows(length=length)))
    assert torch.equal(ours(windows()), resident(windows()))


def test_a_training_pass_keeps_one_input_a_block() -> None:
    def kept(n_layer: int) -> int:
        sizes: list[int] = []

        def pack(tensor: Tensor) -> Tensor:
            sizes.append(tensor.numel())
            return tensor

        model = forecaster("layers", n_layer=n_layer, dropout=0.2)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            model(windows(batch=6, length=20))
        return sum(sizes)

    assert [kept(n) - kept(1) for n in (2, 3, 6)] == [n * 6 * 20 * 16 for n in (1, 2, 5)]


def watch(model: Forecaster, seen: Callable[[int, dict[str, Tensor]], None]) -> None:
    """Calls ``seen`` with each block about to compute and the weights that it will use."""

    def hook(block: nn.Module, _: object, *, number: int) -> None:
        seen(number, {name: weight.detach() for name, weight in block.named_parameters()})

    for number, block in enumerate(model.layers):
        block.register_forward_pre_hook(lambda b, a, number=number: hook(b, a, number=number))


@pytest.mark.parametrize("n_layer", [1, 2, 5])
def test_two_blocks_take_turns_on_the_device_and_the_next_is_there_before_one_computes(n_layer: int) -> None:
    model = forecaster("layers", n_layer=n_layer)
    host = {number: dict(block.named_parameters()) for number, block in enumerate(model.layers)}
    slots: dict[int, dict[str, Tensor]] = {}
    calls: list[int] = []

    def seen(number: int, weights: dict[str, Tensor]) -> None:
        slot = slots.setdefault(number % 2, weights)
        assert all(
            weights[name].data_ptr() == slot[name].data_ptr() != host[number][name].data_ptr()
            for name in slot
        )
        calls.append(number)
        is_forward = len(calls) <= n_layer
        for fetched in (number, number + 1 if is_forward else number - 1):
            if fetched in host and fetched % 2 in slots:
                assert_same(slots[fetched % 2], host[fetched])

    watch(model, seen)
    for _ in range(3):  # the first pass shows where the slots are, the others that they are filled in time
        calls.clear()
        model(windows()).sum().backward()
        assert calls == [*range(n_layer), *reversed(range(n_layer))]
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.01
    assert len(slots) == min(2, n_layer)


def test_weights_move_between_an_offloaded_and_a_resident_model() -> None:
    resident, ours = forecaster("none", seed=1), forecaster("layers", seed=2)
    trained(ours, build_optimizer(ours, OPTIMIZER), range(3))
    resident.load_state_dict(ours.state_dict())
    assert torch.equal(resident(windows()), ours(windows()))
    other = forecaster("none", seed=3)
    ours.load_state_dict(other.state_dict())
    assert torch.equal(other(windows()), ours(windows()))


def test_a_checkpoint_carries_on_bitwise_with_and_without_offload(tmp_path: Path) -> None:
    ours = forecaster("layers", dropout=0.2)
    optimizer = build_optimizer(ours, OPTIMIZER)
    trained(ours, optimizer, range(3))
    save_checkpoint(tmp_path, ours, optimizer, state=TrainState(step=3), fingerprint={})
    expected = trained(ours, optimizer, range(3, 6))
    for offload in ("none", "layers"):
        model = forecaster(offload, seed=5, dropout=0.2)
        optimizer = build_optimizer(model, OPTIMIZER)
        load_checkpoint(tmp_path, model, optimizer, fingerprint={})
        assert trained(model, optimizer, range(3, 6)) == expected
        assert_same(model.state_dict(), ours.state_dict())


def test_a_backward_pass_that_failed_leaves_nothing_to_the_next() -> None:
    model, resident = forecaster("layers"), forecaster("none")

    def fail(number: int, _: dict[str, Tensor]) -> None:
        if number == 0 and torch.is_grad_enabled():  # computed again
            raise RuntimeError("no memory")

    loss = model(windows()).sum()
    handle = model.layers[0].register_forward_pre_hook(lambda b, a: fail(0, {}))
    with pytest.raises(RuntimeError, match="no memory"):
        loss.backward()
    handle.remove()
    for each in (model, resident):
        each.zero_grad()
        each(windows()).sum().backward()
    assert_same(gradients(model), gradients(resident))


def test_initial_weights_are_those_of_a_resident_model_and_the_optimiser_keeps_the_same_apart() -> None:
    resident, ours = forecaster("none"), forecaster("layers")
    assert_same(ours.state_dict(), resident.state_dict())
    groups = [
        [len(group["params"]) for group in build_optimizer(model, OPTIMIZER).param_groups]
        for model in (resident, ours)
    ]
    assert groups[0] == groups[1]


@pytest.mark.gpu
def test_gpu_losses_are_close_to_those_of_resident_weights() -> None:
    losses = []
    for offload in ("none", "layers"):
        model = forecaster(offload, device="cuda", n_layer=4, dropout=0.2)
        torch.cuda.manual_seed(7)
        losses.append(trained(model, build_optimizer(model, OPTIMIZER), range(6), device="cuda"))
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)


@pytest.mark.gpu
def test_gpu_block_weights_gradients_and_moments_lie_on_the_host() -> None:
    model = forecaster("layers", device="cuda")
    optimizer = build_optimizer(model, OPTIMIZER)
    trained(model, optimizer, range(2), device="cuda")
    for parameter in model.layers.parameters():
        assert parameter.is_pinned() and parameter.grad is not None and parameter.grad.is_pinned()
        assert {state.device.type for state in optimizer.state[parameter].values()} == {"cpu"}
    for part in (model.inp, model.norm, model.head):
        assert all(p.is_cuda and optimizer.state[p]["exp_avg"].is_cuda for p in part.parameters())


@pytest.mark.gpu
def test_gpu_copies_of_the_next_block_are_done_while_a_block_computes() -> None:
    model = forecaster("layers", device="cuda", n_layer=4)
    x = windows().cuda()
    model(x)
    layers, overlapped = model.offloaded, []
    assert layers is not None

    def linger(*_: object) -> None:
        torch.cuda._sleep(SLEEP)
        computed = torch.cuda.current_stream().record_event()
        layers._slots[0].ready.synchronize()  # of block 2, which follows block 0 there
        overlapped.append(not computed.query())

    model.layers[1].register_forward_pre_hook(linger)
    with torch.no_grad():
        model(x)
    assert overlapped == [True]


@pytest.mark.gpu
def test_gpu_blocks_do_not_wait_for_copies_of_the_next() -> None:
    model = forecaster("layers", device="cuda", n_layer=4)
    x = windows().cuda()
    model(x)
    layers, overlapped = model.offloaded, []
    assert layers is not None

    def busy_bus(*_: object) -> None:
        with torch.cuda.stream(layers._up):
            torch.cuda._sleep(SLEEP)

    def finish(*_: object) -> None:
        torch.cuda.current_stream().record_event().synchronize()
        overlapped.append(not layers._slots[0].ready.query())

    model.layers[0].register_forward_pre_hook(busy_bus)  # block 2 is copied after it, beside block 1
    model.layers[1].register_forward_hook(finish)
    with torch.no_grad():
        model(x)
    assert overlapped == [True]


@pytest.mark.gpu
@pytest.mark.parametrize("slow", ["up", "down", "compute"])
def test_gpu_losses_do_not_depend_on_which_stream_is_late(slow: str) -> None:
    losses = []
    for cycles in (0, SLEEP // 50):
        model = forecaster("layers", device="cuda", n_layer=4, dropout=0.2)
        layers = model.offloaded
        assert layers is not None
        stream = {"up": layers._up, "down": layers._down, "compute": torch.cuda.current_stream()}[slow]

        def delay(*_: object, stream: Any = stream, cycles: int = cycles) -> None:
            with torch.cuda.stream(stream):
                torch.cuda._sleep(cycles)

        for block in model.layers:
            block.register_forward_pre_hook(delay)
        torch.cuda.manual_seed(7)
        losses.append(trained(model, build_optimizer(model, OPTIMIZER), range(4), device="cuda"))
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)


@pytest.mark.gpu
def test_gpu_memory_peaks_below_half_of_what_resident_weights_need() -> None:
    peaks = []
    for offload in ("none", "layers"):
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        model = forecaster(offload, device="cuda", n_layer=8, d_model=512, headdim=64)
        optimizer = build_optimizer(model, OPTIMIZER)
        trained(model, optimizer, range(2), device="cuda")
        peaks.append(torch.cuda.max_memory_allocated() - before)
        del model, optimizer
    assert peaks[1] < peaks[0] / 2
