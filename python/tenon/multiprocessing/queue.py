# SPDX-License-Identifier: Apache-2.0
"""The queues by the name that torch.multiprocessing has for them."""

from .queues import JoinableQueue, Queue, SimpleQueue

__all__ = ["JoinableQueue", "Queue", "SimpleQueue"]
