# SPDX-License-Identifier: Apache-2.0
"""What of a queue is not done yet: the count behind JoinableQueue.join()."""

from .. import _core
from ._backlog import Debts
from .synchronize import Event, Lock, Semaphore


class Unfinished:
    """What of a queue is not done: what it holds, and what is owed.

    A process owes what it has got and not called task_done() for, and what it has put and not
    brought into the queue yet. Its debts end with it. They are permits that it has acquired.
    Who reads both counts reads the queue's first: what leaves that one was owed before.
    """

    _LOOK_S = 0.2  # how often who joins looks by himself: a debtor that is killed tells nobody

    def __init__(self, core):
        self._core = core
        self.owed = Debts.create(core.domain)
        # task_done() for what nobody has got yet.
        self._ahead, self._ahead_lock = Semaphore(0), Lock()
        self._all_done = Event()

    def owe(self):
        self.owed.owe()

    def pay(self):
        self.owed.pay()
        self.look()

    def look(self):
        """Tell who joins, if all is done."""
        if self.count() <= 0:
            self._all_done.set()

    def look_at_end(self):
        """The same, when a thread ends that the queue and the domain do not wait for."""
        try:
            self.look()
        except (_core.Error, ValueError):
            pass  # closed

    def got(self):
        """What was owed before it was got, was done before that?"""
        if self._ahead.acquire(False):
            self.pay()

    def pay_ahead(self):
        with self._ahead_lock:
            if self.count() <= 0:
                raise ValueError("task_done() called too many times")
            self._ahead.release()
        self.look()

    def count(self):
        waiting = self._core.count()
        return waiting + self.owed.count() - self._ahead.get_value()

    def join(self):
        while self.count() > 0:
            self._all_done.clear()
            if self.count() > 0:
                self._all_done.wait(self._LOOK_S)
