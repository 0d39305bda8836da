"""A stack of blocks whose weights stay on the host: for models larger than the device.

The device has two slots, each with room for one block's weights. Blocks take turns in them, and while one
computes the next one is copied in, so copies hide behind the arithmetic:

    copies up     w0  w1  w2  w3 |     w1  w0                  (w3 and w2 still lie in their slots)
    compute           b0  b1  b2  b3 | b3  b2  b1  b0
    copies down                            g3  g2  g1  g0      gradients

The surprise: a block is computed twice a step. The forward pass keeps nothing of a block but its input, and
the backward pass computes the block again, with the same dropout, so one block's activations exist at a time.
On the CPU the same code runs without streams, and every result is bitwise that of resident weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


@dataclass
class _Slot:
    """Room on the device for the weights of one block."""

    weights: dict[str, Tensor]
    free: torch.cuda.Event | None  # after which they may be overwritten
    ready: torch.cuda.Event | None = None  # after which they may be read
    block: int = -1  # whose weights they are; -1 = none that count


@dataclass(frozen=True)
class _Gradients:
    """Gradients on their way to the host; the device's are held, since the copies still read them."""

    parameters: list[nn.Parameter]
    on_host: list[Tensor]
    on_device: list[Tensor]
    arrived: torch.cuda.Event | None


class OffloadedLayers:
    """Runs blocks of one shape on a device that holds the weights of two of them at a time.

    The blocks' parameters, and so their gradients and what an optimiser keeps of them, are host tensors, as
    in any model on the CPU; each is trained. A backward pass needs the values of its forward pass.
    """

    def __init__(self, blocks: nn.ModuleList, device: torch.device | str) -> None:
        """Layers ready to run; for CUDA the parameters are moved into pinned memory, which such copies need.

        Args:
            blocks: at least one, on the host, all of one shape; each maps [B, L, D] to [B, L, D], or with
                ``last_only=True`` to its last step [B, D].
            device: where they are computed.
        """
        self._blocks = tuple(blocks)
        self._device = torch.device(device)
        self._up: torch.cuda.Stream | None = None
        self._down: torch.cuda.Stream | None = None  # the bus carries both ways at once
        if self._device.type == "cuda":
            self._up = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
            self._down = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
            for parameter in blocks.parameters():
                parameter.data = parameter.data.pin_memory()
        self._slots = []
        for block in self._blocks[:2]:
            host = block.named_parameters()
            weights = {name: torch.empty_like(p, device=device, requires_grad=True) for name, p in host}
            self._slots.append(_Slot(weights, free=self._computed()))
        self._sent: _Gradients | None = None

    def __call__(self, hidden: Tensor) -> Tensor:
        """The last block's output at the last step [B, D], from the first block's input [B, L, D].

        Args:
            hidden: floating [B, L, D] on the device; in training it requires a gradient.
        """
        self._sent = None  # a backward pass that failed may have left some
        for slot in self._slots:
            slot.block = -1  # the host's weights may have changed
        for number in range(len(self._blocks)):
            hidden = _Offloaded.apply(hidden, self, number)  # type: ignore[no-untyped-call]
        if self._up is not None:
            self._up.synchronize()  # from here on the caller may change the host's weights
        return hidden

    def forward(self, number: int, hidden: Tensor) -> Tensor:
        """A block's output, while the weights of the block after it are copied."""
        with self._weights(number, then=number + 1) as weights:
            return self._output(number, hidden, weights)

    def backward(self, number: int, hidden: Tensor, grad: Tensor) -> Tensor:
        """The gradient of a block's input, from that of its output; those of its weights go to the host.

        They are added to ``.grad`` once the arithmetic of the block before it was started, so that the host
        waits for copies while the device computes; with block 0 all have arrived.
        """
        with self._weights(number, then=number - 1) as weights:
            with torch.enable_grad():
                hidden = hidden.detach().requires_grad_()
                out = self._output(number, hidden, weights)
            back, *down = torch.autograd.grad(out, (hidden, *weights.values()), grad)
        self._send(number, down)
        if number == 0:
            self._receive()
        return back

    def _output(self, number: int, hidden: Tensor, weights: dict[str, Tensor]) -> Tensor:
        last = {"last_only": number == len(self._blocks) - 1}  # nothing reads the last block's other steps
        out: Tensor = torch.func.functional_call(self._blocks[number], weights, (hidden,), last)
        return out

    @contextmanager
    def _weights(self, number: int, *, then: int) -> Iterator[dict[str, Tensor]]:
        """Device weights of one block, those of block ``then`` being under way, for this thread's stream."""
        self._fetch(number)
        self._fetch(then)
        slot = self._slots[number % len(self._slots)]
        if slot.ready is not None:
            torch.cuda.current_stream(self._device).wait_event(slot.ready)
        yield slot.weights
        slot.free = self._computed()

    @torch.no_grad()
    def _fetch(self, number: int) -> None:
        """Starts to copy a block's weights into its slot; nothing if they are there, or no such block."""
        slot = self._slots[number % len(self._slots)]
        if not 0 <= number < len(self._blocks) or slot.block == number:
            return
        slot.block = number
        with _on(self._up, after=slot.free):
            for name, parameter in self._blocks[number].named_parameters():
                slot.weights[name].copy_(parameter, non_blocking=True)
            slot.ready = self._up.record_event() if self._up is not None else None

    def _send(self, number: int, gradients: list[Tensor]) -> None:
        """Starts to copy a block's gradients to the host, and receives those that were sent before."""
        parameters = list(self._blocks[number].parameters())
        on_host = [torch.empty_like(p, pin_memory=self._down is not None) for p in parameters]
        with _on(self._down, after=self._computed()):
            for host, gradient in zip(on_host, gradients, strict=True):
                host.copy_(gradient, non_blocking=True)
            arrived = self._down.record_event() if self._down is not None else None
        self._receive()
        self._sent = _Gradients(parameters, on_host, gradients, arrived)

    def _receive(self) -> None:
        """Waits for the gradients that are on their way, if any, and adds them to ``.grad``."""
        sent, self._sent = self._sent, None
        if sent is None:
            return
        if sent.arrived is not None:
            sent.arrived.synchronize()
        for parameter, gradient in zip(sent.parameters, sent.on_host, strict=True):
            parameter.grad = gradient if parameter.grad is None else parameter.grad.add_(gradient)

    def _computed(self) -> torch.cuda.Event | None:
        """What was given to the computing stream so far, as an event; None on the CPU, where it is done."""
        if self._up is None:
            return None
        event: torch.cuda.Event = torch.cuda.current_stream(self._device).record_event()
        return event


class _Offloaded(torch.autograd.Function):
    """One block; its backward pass computes it again from its input, with the same random draws."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, layers: OffloadedLayers, number: int) -> Tensor:
        ctx.save_for_backward(hidden)
        ctx.layers, ctx.number = layers, number
        ctx.rng = torch.get_rng_state()
        ctx.device_rng = torch.cuda.get_rng_state(hidden.device) if hidden.is_cuda else None
        return layers.forward(number, hidden)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (hidden,) = ctx.saved_tensors
        with torch.random.fork_rng([hidden.device] if hidden.is_cuda else [], device_type="cuda"):
            torch.set_rng_state(ctx.rng)
            if ctx.device_rng is not None:
                torch.cuda.set_rng_state(ctx.device_rng, hidden.device)
            return ctx.layers.backward(ctx.number, hidden, grad), None, None


def _on(
    stream: torch.cuda.Stream | None, *, after: torch.cuda.Event | None
) -> AbstractContextManager[object]:
    """Where work inside goes to ``stream``, after the event; on the CPU, with neither, it is just done."""
    if stream is None or after is None:
        return nullcontext()
    stream.wait_event(after)
    return torch.cuda.stream(stream)
