"""State-space duality (SSD), the scan of Mamba-2: inputs x, dt, B and C along time become outputs y.

One recurrence in three forms: in chunks (training), at the last step only (the last layer), and step by step
(streaming, and the reference). Steps are numbered as in arXiv 2405.21060, section 6 and listing 1.

    b  batch           c  chunks                       x   [b, l, h, p]   values; y has the same shape
    l  length          q  steps of a chunk             dt  [b, l, h]      step size, at least 0
    h  heads = g * r   t  step that reads              A   [h]            decay rate, negative
    p  headdim         s  step that writes, s <= t     B   [b, l, g, n]   how a step writes; C: how it reads
    n  state size      g  groups of r heads            D   [h] or [h, p]  skip from x to y

    S_t = exp(dt_t A) S_{t-1} + dt_t x_t B_t^T         S   [b, h, p, n]   state
    y_t = S_t C_t + D x_t

The surprise: log decays are clamped to -30 a step (-60 in float64). exp(-30) = 1e-13 is as good as nothing,
and the running sums, whose differences carry the slow heads, stay small enough for float32.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from foxhunt_ray.errors import ConfigError
from foxhunt_ray.models.checks import check_scan

_NO_LIMIT = (0.0, math.inf)


def ssd_chunked(
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    *,
    chunk_size: int,
    D: Tensor | None = None,
    dt_bias: Tensor | None = None,
    dt_softplus: bool = False,
    dt_limit: tuple[float, float] = _NO_LIMIT,
    initial_states: Tensor | None = None,
    return_final_state: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """y [b, l, h, p] in the type of x, or (y, final state [b, h, p, n]); quadratic in a chunk, linear across.

    Inside a chunk the scan is a masked matrix product; between chunks only the state is carried. Running sums
    and states are float64 under float64, and float32 under anything narrower.

    Args:
        x: floating [b, l, h, p], any strides; l is any length from 1 on.
        dt: floating [b, l, h]; what counts is clamp(softplus(dt + dt_bias), *dt_limit).
        A: floating [h], negative; its sign is not checked, since that would wait for the device.
        B: [b, l, g, n] in the type of x; g divides h, and head i belongs to group i // (h / g).
        C: like B.
        chunk_size: longest chunk [steps]; the fewest chunks it allows are used, of equal length.
        D: floating [h] or [h, p]; none is zero.
        dt_bias: floating [h]; none is zero.
        dt_softplus: whether dt + dt_bias passes through softplus.
        dt_limit: smallest and largest step size.
        initial_states: floating [b, h, p, n], the state before the first step; none is zero.
        return_final_state: whether the state after the last step is returned too.

    Raises:
        ConfigError: chunk_size < 1, or dt_limit out of order.
        DataError: shapes, types or devices that do not fit each other, or no step at all.
    """
    if chunk_size < 1:
        raise ConfigError(f"chunk_size is {chunk_size}; expected 1 step or more: 64 suits most lengths")
    check_scan("bl", x=x, dt=dt, A=A, B=B, C=C, D=D, dt_bias=dt_bias, state=initial_states)
    dt = _step_size(dt, x, dt_bias, dt_softplus, dt_limit)
    b, length, h, p = x.shape
    g, r = B.shape[2], h // B.shape[2]
    c = math.ceil(length / chunk_size)
    q = math.ceil(length / c)  # 45 steps in chunks of 32 are 2 x 23: one step of padding, not 19

    # Padding writes nothing (x dt = 0) and forgets nothing (log decay = 0): the final state does not move.
    xdt = _cut((x * dt.unsqueeze(-1)).to(x.dtype), c, q).reshape(b, c, q, g, r, p)
    cum = (
        _cut(_log_decay(dt, A), c, q).transpose(2, 3).cumsum(-1).reshape(b, c, g, r, q)
    )  # from the chunk's start
    B, C = _cut(B, c, q), _cut(C, c, q)  # b c q g n

    y = _within_chunks(xdt, cum, B, C)  # b c t g r p
    state = initial_states
    if c > 1 or initial_states is not None or return_final_state:
        starts, state = _states(xdt, cum, B, initial_states)
        if c > 1 or initial_states is not None:
            y = y + _from_states(starts, cum, C)
    y = y.reshape(b, c * q, h, p)[:, :length]
    if D is not None:
        y = torch.addcmul(y, x, _per_channel(D, x))
    return (y, state) if return_final_state and state is not None else y


def _within_chunks(xdt: Tensor, cum: Tensor, B: Tensor, C: Tensor) -> Tensor:
    """Step 1, diagonal blocks: y_t = sum_{s<=t} (C_t . B_s) exp(cum_t - cum_s) xdt_s, [b, c, t, g, r, p]."""
    between = cum.unsqueeze(-1) + (-cum).unsqueeze(-2)  # b c g r t s
    # Clamped before exp: above the diagonal the difference is positive, and inf * 0 would be nan. Autograd
    # need not see it: above the diagonal scores are 0, and what is clamped below it has a gradient of 1e-13.
    with torch.no_grad():
        between.clamp_(_nothing_left(between), 0)
    decay = between.exp_()
    scores = torch.einsum("bctgn,bcsgn->bcgts", C, B)
    past = (scores.tril(-1).unsqueeze(3) * decay).to(xdt.dtype)  # b c g r t s
    # s = t has no decay; in heads that forget fast it is nearly all of y, and its rounding error would swamp
    # the gradient of the decay if it took part.
    own = (C * B).sum(-1)[..., None, None]  # b c t g 1 1
    return torch.addcmul(torch.einsum("bcgrts,bcsgrp->bctgrp", past, xdt), xdt, own)


def _states(xdt: Tensor, cum: Tensor, B: Tensor, initial: Tensor | None) -> tuple[Tensor, Tensor]:
    """Steps 2 and 3: states at the starts of chunks [b, c, g, r, p, n], and the final one [b, h, p, n]."""
    # 2. What each chunk alone leaves behind: sum_s exp(cum_last - cum_s) xdt_s B_s^T.
    to_end = _factor(cum[..., -1:] - cum).permute(0, 1, 4, 2, 3).unsqueeze(-1)  # b c s g r 1
    left = torch.einsum("bcsgrp,bcsgn->bcgrpn", (xdt * to_end).to(B.dtype), B).to(cum.dtype)
    # 3. Across chunks: S_next = exp(cum_last) S + left.
    across = _factor(cum[..., -1])[..., None, None]  # b c g r 1 1
    state = (
        torch.zeros_like(left[:, 0]) if initial is None else initial.to(cum.dtype).reshape(left[:, 0].shape)
    )
    starts = []
    for k in range(left.shape[1]):
        starts.append(state)
        state = torch.addcmul(left[:, k], across[:, k], state)
    return torch.stack(starts, 1), state.flatten(1, 2)


def _from_states(starts: Tensor, cum: Tensor, C: Tensor) -> Tensor:
    """Step 4, states to outputs: y_t = exp(cum_t) S_start C_t, [b, c, t, g, r, p]."""
    y = torch.einsum("bctgn,bcgrpn->bctgrp", C, starts.to(C.dtype))
    return (y * _factor(cum).permute(0, 1, 4, 2, 3).unsqueeze(-1)).to(C.dtype)


def ssd_last(
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    *,
    D: Tensor | None = None,
    dt_bias: Tensor | None = None,
    dt_softplus: bool = False,
    dt_limit: tuple[float, float] = _NO_LIMIT,
) -> Tensor:
    """y [b, h, p] of the last step alone, equal to ``ssd_chunked(...)[:, -1]``, in time linear in l.

    Unrolled from S_0 = 0 and read once, at the last step l, the recurrence is

        y_l = sum_s w_s x_s + D x_l,    w_s = (C_l . B_s) dt_s exp(sum_{s < k <= l} dt_k A),

    so neither a state nor a q x q matrix is formed: one weight a head and step, then one weighted sum.
    Takes what ``ssd_chunked`` takes, but C [b, g, n] is that of the last step.

    Raises:
        ConfigError: dt_limit out of order.
        DataError: shapes, types or devices that do not fit each other, or no step at all.
    """
    check_scan("bl", x=x, dt=dt, A=A, B=B, D=D, dt_bias=dt_bias)
    check_scan("b", x=x[:, -1], B=B[:, -1], C=C)
    dt = _step_size(dt, x, dt_bias, dt_softplus, dt_limit)
    # Summed from the end, where the weights are largest, so that there the sums are smallest and most exact.
    later = F.pad(_log_decay(dt, A)[:, 1:], (0, 0, 0, 1)).flip(1).cumsum(1).flip(1)  # b l h
    scores = torch.einsum("bsgn,bgn->bsg", B, C).repeat_interleave(x.shape[2] // B.shape[2], 2)  # b l h
    weight = (scores * _factor(later) * dt).to(x.dtype)
    y = torch.einsum("bsh,bshp->bhp", weight, x)
    return y if D is None else torch.addcmul(y, x[:, -1], _per_channel(D, x))


def ssd_recurrent(
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    *,
    chunk_size: int,
    D: Tensor | None = None,
    dt_bias: Tensor | None = None,
    dt_softplus: bool = False,
    dt_limit: tuple[float, float] = _NO_LIMIT,
    initial_states: Tensor | None = None,
    return_final_state: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """What ``ssd_chunked`` returns, computed as the recurrence is written, step by step: the reference.

    Takes what ``ssd_chunked`` takes; chunk_size has no effect. Slow, and free of every clamp of a decay.

    Raises:
        ConfigError: dt_limit out of order.
        DataError: shapes, types or devices that do not fit each other, or no step at all.
    """
    check_scan("bl", x=x, dt=dt, A=A, B=B, C=C, D=D, dt_bias=dt_bias, state=initial_states)
    b, length, h, p = x.shape
    state = initial_states
    if state is None:
        state = torch.zeros(b, h, p, B.shape[3], dtype=_accumulation(x), device=x.device)
    steps = []
    for t in range(length):
        now = (x[:, t], dt[:, t], A, B[:, t], C[:, t])
        state, y = ssd_step(state, *now, D=D, dt_bias=dt_bias, dt_softplus=dt_softplus, dt_limit=dt_limit)
        steps.append(y)
    y = torch.stack(steps, 1)
    return (y, state) if return_final_state else y


def ssd_step(
    state: Tensor,
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    *,
    D: Tensor | None = None,
    dt_bias: Tensor | None = None,
    dt_softplus: bool = False,
    dt_limit: tuple[float, float] = _NO_LIMIT,
) -> tuple[Tensor, Tensor]:
    """(new state [b, h, p, n], y [b, h, p]) after one step; the given state is not changed.

    Takes what ``ssd_chunked`` takes, without the axis l: x [b, h, p], dt [b, h], B and C [b, g, n]. The new
    state is float64 under float64, else float32.

    Raises:
        ConfigError: dt_limit out of order.
        DataError: shapes, types or devices that do not fit each other.
    """
    check_scan("b", x=x, dt=dt, A=A, B=B, C=C, D=D, dt_bias=dt_bias, state=state)
    r = x.shape[1] // B.shape[1]
    dt = _step_size(dt, x, dt_bias, dt_softplus, dt_limit)
    written = (x * dt.unsqueeze(-1)).unsqueeze(-1) * B.repeat_interleave(r, 1).unsqueeze(2)  # b h p n
    state = (dt * A.to(dt.dtype)).exp()[..., None, None] * state.to(dt.dtype) + written
    y = (state * C.repeat_interleave(r, 1).unsqueeze(2)).sum(-1).to(x.dtype)
    return state, y if D is None else torch.addcmul(y, x, _per_channel(D, x))


def _accumulation(x: Tensor) -> torch.dtype:
    """Type of running sums and states; in bfloat16 the sum over one chunk of 64 would be off by 8 %."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def _step_size(
    dt: Tensor, x: Tensor, bias: Tensor | None, softplus: bool, limit: tuple[float, float]
) -> Tensor:
    """clamp(softplus(dt + bias), *limit) in the accumulation type, in the order of the reference code."""
    low, high = limit
    if not 0 <= low <= high:
        raise ConfigError(f"dt_limit is ({low}, {high}); expected 0 <= low <= high, such as (0.001, 0.1)")
    dt = dt.to(_accumulation(x))
    if bias is not None:
        dt = dt + bias.to(dt.dtype)
    return (F.softplus(dt) if softplus else dt).clamp(low, high)


def _log_decay(dt: Tensor, A: Tensor) -> Tensor:
    """dt A [b, l, h], clamped; log-normal dt over 4096 steps errs by 4e-6 with the clamp, by 4e-3 without."""
    return (dt * A.to(dt.dtype)).clamp(min=_nothing_left(dt))


def _factor(log_decay: Tensor) -> Tensor:
    return log_decay.clamp(min=_nothing_left(log_decay)).exp()


def _nothing_left(log_decay: Tensor) -> float:
    """Log decay after which nothing is left; far from denormals, which cost a CPU up to 40 times the time."""
    return -60.0 if log_decay.dtype == torch.float64 else -30.0


def _cut(steps: Tensor, c: int, q: int) -> Tensor:
    """[b, l, ...] as [b, c, q, ...], with zeros after the end."""
    missing = c * q - steps.shape[1]
    if missing:
        steps = F.pad(steps, (0, 0) * (steps.ndim - 2) + (0, missing))
    return steps.reshape(steps.shape[0], c, q, *steps.shape[2:])


def _per_channel(D: Tensor, x: Tensor) -> Tensor:
    return (D if D.ndim == 2 else D.unsqueeze(-1)).to(x.dtype)
