# SPDX-License-Identifier: Apache-2.0
"""The names of torch.multiprocessing.reductions that do not depend on PyTorch's strategies."""

from .._cpython import ForkingPickler, register_after_fork

__all__ = ["ForkingPickler", "init_reductions", "register_after_fork"]


def init_reductions() -> None:
    """Let PyTorch's tensors travel in shared memory; by calling tenon.torch.install()."""
    import tenon.torch

    tenon.torch.install()
