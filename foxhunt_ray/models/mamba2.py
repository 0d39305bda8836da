"""Mamba-2 mixer: a sequence [B, L, d_model] becomes one of the same shape, no step seeing a later one.

Parameters carry the names and order of the reference code (state-spaces/mamba, ``Mamba2``), so weights can
move both ways. The surprise: ``last_only`` gives the last step alone, exactly, for well under half the work;
the last layer of a forecaster needs no more.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foxhunt_ray.errors import DataError
from foxhunt_ray.models.checks import check_sizes
from foxhunt_ray.models.ssd import ssd_chunked, ssd_last


class Mamba2(nn.Module):
    """The mixer of arXiv 2405.21060, figure 6: project, convolve, scan, gate and normalise, project back."""

    def __init__(
        self,
        d_model: int,
        *,
        d_state: int,
        d_conv: int,
        expand: int,
        headdim: int,
        ngroups: int,
        chunk_size: int,
        dt_limit: tuple[float, float] = (0.0, math.inf),
        norm_eps: float = 1e-5,
    ) -> None:
        """A mixer initialised for training from scratch, from torch's global random stream.

        Args:
            d_model: width of input and output.
            d_state: state size n of a head.
            d_conv: width of the causal convolution [steps].
            expand: inner width as a multiple of d_model.
            headdim: channels p of a head; divides expand * d_model.
            ngroups: groups of heads that share B and C; divides the number of heads.
            chunk_size: longest chunk of the scan [steps].
            dt_limit: smallest and largest step size of the scan.
            norm_eps: added to the mean square in the gated norm.

        Raises:
            ConfigError: a size below 1, or sizes that do not divide.
        """
        super().__init__()
        sizes = {"d_state": d_state, "d_conv": d_conv, "chunk_size": chunk_size}
        check_sizes(d_model=d_model, expand=expand, headdim=headdim, ngroups=ngroups, **sizes)
        self.headdim, self.ngroups, self.d_state = headdim, ngroups, d_state
        self.chunk_size, self.dt_limit = chunk_size, dt_limit
        self.inner, self.bc_width = expand * d_model, ngroups * d_state
        self.heads = self.inner // headdim

        channels = self.inner + 2 * self.bc_width
        self.in_proj = nn.Linear(d_model, self.inner + channels + self.heads, bias=False)  # z, x, B, C, dt
        self.conv1d = nn.Conv1d(channels, channels, d_conv, groups=channels)  # x, B, C; holds weights only
        # Step sizes log-uniform in 1e-3 .. 1e-1, as in the reference code; softplus(dt_bias) gives them back.
        dt = torch.empty(self.heads).uniform_(math.log(1e-3), math.log(1e-1)).exp().clamp(min=1e-4)
        self.dt_bias = nn.Parameter(dt + torch.log(-torch.expm1(-dt)))
        self.A_log = nn.Parameter(torch.empty(self.heads).uniform_(1, 16).log())
        self.D = nn.Parameter(torch.ones(self.heads))
        self.norm = nn.RMSNorm(self.inner, eps=norm_eps)
        self.out_proj = nn.Linear(self.inner, d_model, bias=False)
        exempt_from_decay(self)

    def forward(self, u: Tensor, last_only: bool = False) -> Tensor:
        """y [B, L, d_model] in the type of u, or its last step [B, d_model] if ``last_only``.

        Args:
            u: floating [B, L, d_model], L >= 1.
            last_only: compute the last step alone.

        Raises:
            DataError: u has another width, or no step.
        """
        width = self.in_proj.in_features
        if u.ndim != 3 or u.shape[1] == 0 or u.shape[2] != width:
            raise DataError(f"input has shape {list(u.shape)}; expected [B, L, {width}] with L >= 1")
        y, z = self._scan_last(u) if last_only else self._scan(u)
        out: Tensor = self.out_proj(self._gated_norm(y, z))
        return out

    def _scan(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """Output of the scan and gate z at every step, both [B, L, inner]."""
        b, length, _ = u.shape
        channels = self.inner + 2 * self.bc_width
        z, xBC, dt = torch.split(self.in_proj(u), [self.inner, channels, self.heads], dim=-1)
        xBC = self._causal_conv(xBC, slice(None))
        x, B, C = torch.split(xBC, [self.inner, self.bc_width, self.bc_width], dim=-1)
        y = ssd_chunked(
            x.view(b, length, self.heads, self.headdim),
            dt,
            -self.A_log.exp(),
            B.view(b, length, self.ngroups, self.d_state),
            C.view(b, length, self.ngroups, self.d_state),
            chunk_size=self.chunk_size,
            D=self.D,
            dt_bias=self.dt_bias,
            dt_softplus=True,
            dt_limit=self.dt_limit,
        )
        assert isinstance(y, Tensor)  # no state was asked for
        return y.reshape(b, length, self.inner), z

    def _scan_last(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """Output of the scan and gate z at the last step, both [B, inner].

        The output there needs x, B and dt of every step, but z and C of the last one only, and that C needs
        the last d_conv inputs only.
        """
        b, length, _ = u.shape
        rows = [self.inner, self.inner + self.bc_width, self.bc_width, self.heads]
        to_z, to_xB, to_C, to_dt = torch.split(self.in_proj.weight, rows)
        d_conv = self.conv1d.weight.shape[2]
        xB = self._causal_conv(F.linear(u, to_xB), slice(rows[1]))
        C = self._causal_conv(F.linear(u[:, -d_conv:], to_C), slice(rows[1], None))[:, -1]
        x, B = torch.split(xB, [self.inner, self.bc_width], dim=-1)
        y = ssd_last(
            x.view(b, length, self.heads, self.headdim),
            F.linear(u, to_dt),
            -self.A_log.exp(),
            B.view(b, length, self.ngroups, self.d_state),
            C.view(b, self.ngroups, self.d_state),
            D=self.D,
            dt_bias=self.dt_bias,
            dt_softplus=True,
            dt_limit=self.dt_limit,
        )
        return y.reshape(b, self.inner), F.linear(u[:, -1], to_z)

    def _causal_conv(self, x: Tensor, channels: slice) -> Tensor:
        """silu(bias + sum_i weight_i x[t - d_conv + 1 + i]), [b, l, c], of some channels; x[t < 0] = 0.

        Shifted multiply-adds in the layout of the scan; F.conv1d wants time last: two transposes, and slower.
        """
        assert self.conv1d.bias is not None  # made with one
        taps = self.conv1d.weight[channels].squeeze(1).t().to(x.dtype)  # d_conv c
        past = F.pad(x, (0, 0, len(taps) - 1, 0))
        out = self.conv1d.bias[channels].to(x.dtype)
        for i, tap in enumerate(taps.unbind()):
            out = torch.addcmul(out, past[:, i : i + x.shape[1]], tap)
        return F.silu(out)

    def _gated_norm(self, y: Tensor, z: Tensor) -> Tensor:
        """RMS norm of y * silu(z) over each group of heads; the gate comes first, as in the reference."""
        gated = (y * F.silu(z)).reshape(*y.shape[:-1], self.ngroups, -1)
        normed = F.rms_norm(gated, [gated.shape[-1]], eps=self.norm.eps)
        return normed.reshape(y.shape) * self.norm.weight.to(y.dtype)


def make_block(cfg: dict[str, Any]) -> Mamba2:
    """A mixer from a mapping of its arguments, the form in which a conformance runner asks for it."""
    return Mamba2(**cfg)


def exempt_from_decay(module: nn.Module) -> None:
    """Nothing; marks vectors (rates, skips, biases, norms) as ``_no_weight_decay``, read by the optimizer.

    Decay pulls towards zero, which is no neutral value for a decay rate, a step size or a skip.
    """
    for parameter in module.parameters():
        if parameter.ndim < 2:
            parameter._no_weight_decay = True  # type: ignore[attr-defined]
