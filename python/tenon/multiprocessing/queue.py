# SPDX-License-Identifier: Apache-2.0
"""The queues, in a module that torch.multiprocessing has too."""

from .queues import JoinableQueue, Queue, SimpleQueue

__all__ = ["JoinableQueue", "Queue", "SimpleQueue"]
