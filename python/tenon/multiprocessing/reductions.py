# SPDX-License-Identifier: Apache-2.0
"""What torch.multiprocessing.reductions has of names that do not hang on its strategies."""

from .._cpython import ForkingPickler, register_after_fork

__all__ = ["ForkingPickler", "init_reductions", "register_after_fork"]


def init_reductions() -> None:
    """Let PyTorch's tensors travel in shared memory; as tenon.torch.install() does."""
    import tenon.torch

    tenon.torch.install()
