# SPDX-License-Identifier: Apache-2.0
"""A child for many tests: it does what it is asked, one thing after the other.

What takes long is to begin anew and to import PyTorch; so there is one child for each start
method, in which every variant of a test runs.
"""

import inspect
import traceback

import tenon.multiprocessing as mp
from tenon import _core

METHODS = ["fork", "spawn", "forkserver"]
PRELOADED = ["hypothesis", "numpy", "pytest", "tenon.multiprocessing"]
WITHIN_S = 60

given = None  # in a child: what it was given when it was made
kept = {}  # in a child: what it has between two questions


class _Child:
    def __init__(self, questions, answers, to_give):
        super().__init__(daemon=True)
        self.questions, self.answers, self.to_give = questions, answers, to_give

    def run(self):
        global given
        given = self.to_give
        while True:
            question = self.questions.get()
            if question is None:
                return
            strategy, function, arguments = question
            del question
            _core.set_strategy(strategy)
            try:
                self.answer(function(*arguments))
            except Exception:
                self.answers.put((False, traceback.format_exc()))
            del arguments

    def answer(self, result):
        for value in result if inspect.isgenerator(result) else [result]:
            self.answers.put((True, value))
            del value


class _ForkChild(_Child, mp.get_context("fork").Process):
    pass


class _SpawnChild(_Child, mp.get_context("spawn").Process):
    pass


class _ForkserverChild(_Child, mp.get_context("forkserver").Process):
    pass


_CHILDREN = {"fork": _ForkChild, "spawn": _SpawnChild, "forkserver": _ForkserverChild}


class Peer:
    """Such a child, seen from its parent. to_give: what it has as a process's argument."""

    def __init__(self, method, to_give=None):
        self.context = mp.get_context(method)
        self.questions, self.answers = self.context.Queue(), self.context.Queue()
        self.to_give = to_give
        self.process = _CHILDREN[method](self.questions, self.answers, to_give)
        self.process.start()

    def begin(self, function, *arguments):
        self.questions.put((_core.get_strategy(), function, arguments), timeout=WITHIN_S)

    def answer(self):
        """The next answer: of a generator, each value that it yields is one."""
        is_well, value = self.answers.get(timeout=WITHIN_S)
        assert is_well, value
        return value

    def ask(self, function, *arguments):
        self.begin(function, *arguments)
        return self.answer()

    def end(self):
        """The child ends; what it has put already can still be had by answer()."""
        self.questions.put(None, timeout=WITHIN_S)
        self.process.join(WITHIN_S)
        assert self.process.exitcode == 0

    def close(self):
        if self.process.exitcode is None:
            self.end()
        self.questions.close()
        self.answers.close()


class Peers(dict):
    """A Peer for each start method, made when it is first asked for."""

    def __init__(self, make):
        super().__init__()
        self.make = make

    def __missing__(self, method):
        self[method] = self.make(method)
        return self[method]

    def close(self):
        for peer in self.values():
            peer.close()
        self.clear()


def keep(name, value):
    kept[name] = value


def forget(name=None):
    if name is None:
        kept.clear()
    else:
        del kept[name]


def give_back(value):
    return value
