"""What the model code refuses, said with the numbers at hand and the nearest that would fit.

Only shapes, types and devices are looked at, never values, so nothing here waits for an accelerator.
"""

from __future__ import annotations

from torch import Tensor

from foxhunt_ray.errors import ConfigError, DataError


def check_sizes(*, d_model: int, expand: int, headdim: int, ngroups: int, **others: int) -> None:
    """Nothing, if a mixer of these sizes exists.

    Args:
        d_model: width of the mixer.
        expand: inner width as a multiple of d_model.
        headdim: channels of a head.
        ngroups: groups of heads.
        others: further sizes, each at least 1.

    Raises:
        ConfigError: a size below 1, or sizes that do not divide.
    """
    sizes = {"d_model": d_model, "expand": expand, "headdim": headdim, "ngroups": ngroups, **others}
    for name, size in sizes.items():
        if size < 1:
            raise ConfigError(f"{name} is {size}; expected 1 or more")
    inner = expand * d_model
    if inner % headdim:
        raise ConfigError(
            f"headdim {headdim} does not divide expand * d_model = {inner}; use {_nearest(headdim, inner)}"
        )
    heads = inner // headdim
    if heads % ngroups:
        raise ConfigError(
            f"{heads} heads do not divide into ngroups = {ngroups}; use {_nearest(ngroups, heads)}"
        )


def check_scan(axes: str, *, x: Tensor, B: Tensor, **others: Tensor | None) -> None:
    """Nothing, if the scan's inputs fit each other.

    Args:
        axes: letters of the leading axes, "bl" for a sequence and "b" for one step.
        x: floating [*axes, h, p].
        B: [*axes, g, n] in the type of x.
        others: any of dt, A, C, D, dt_bias and state, by name.

    Raises:
        DataError: shapes, types or devices that do not fit, or no step at all.
    """
    given = {"x": x, "B": B} | {name: tensor for name, tensor in others.items() if tensor is not None}
    _check_types(given, x)
    if x.ndim != len(axes) + 2 or B.ndim != len(axes) + 2:
        lead = ", ".join(axes)
        raise DataError(
            f"x has shape {list(x.shape)}, B {list(B.shape)}; expected [{lead}, h, p] and [{lead}, g, n]"
        )
    *lengths, h, p = x.shape
    g, n = B.shape[-2:]
    if 0 in lengths[1:]:
        raise DataError(f"x has shape {list(x.shape)}, so no step in time; expected at least one")
    if g < 1 or h % g:
        raise DataError(f"{h} heads do not divide into the {g} groups of B; use {_nearest(g, h)} groups")
    expected = {"x": [*lengths, h, p], "dt": [*lengths, h], "A": [h], "dt_bias": [h]}
    expected |= {"B": [*lengths, g, n], "C": [*lengths, g, n], "state": [lengths[0], h, p, n]}
    for name, tensor in given.items():
        # D may be one number a head, or one a channel.
        wanted = [h, p][: tensor.ndim] if name == "D" and tensor.ndim else expected.get(name, [h])
        if list(tensor.shape) != wanted:
            raise DataError(
                f"{name} has shape {list(tensor.shape)}; expected {wanted}, to fit x {list(x.shape)}"
            )


def _check_types(given: dict[str, Tensor], x: Tensor) -> None:
    for name, tensor in given.items():
        if not tensor.is_floating_point():
            raise DataError(f"{name} is {tensor.dtype}; expected a floating type: convert it with .float()")
        if tensor.device != x.device:
            raise DataError(f"{name} is on {tensor.device}, x on {x.device}; move them to one device")
        if name in "BC" and tensor.dtype != x.dtype:
            raise DataError(f"{name} is {tensor.dtype}, x is {x.dtype}; convert them to one type")


def _nearest(wanted: int, total: int) -> str:
    """The two divisors of total nearest to wanted, in words."""
    fits = [k for k in range(1, total + 1) if total % k == 0]
    return " or ".join(map(str, sorted(sorted(fits, key=lambda k: abs(k - wanted))[:2])))
