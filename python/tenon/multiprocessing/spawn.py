# SPDX-License-Identifier: Apache-2.0
"""Several processes that run one function, as in torch.multiprocessing."""

import importlib
import sys
import time
import types

from . import context as _context

__all__ = [
    "ProcessContext",
    "ProcessException",
    "ProcessExitedException",
    "ProcessRaisedException",
    "SpawnContext",
    "spawn",
    "start_processes",
]

_KILL_AFTER_S = 30  # then a process that was asked to end is killed
_MOST_TEXT = 32768  # bytes of a traceback: they fit into a pipe that no process reads


class ProcessException(Exception):
    """One of several processes failed: number `error_index`, with pid `error_pid`."""

    def __init__(self, msg, error_index, pid):
        super().__init__(msg)
        self.msg = msg
        self.error_index = error_index
        self.error_pid = pid

    @property
    def pid(self):
        return self.error_pid

    def __reduce__(self):
        return type(self), (self.msg, self.error_index, self.error_pid)


class ProcessRaisedException(ProcessException):
    """The function raised. The message has the traceback."""

    def __init__(self, msg, error_index, error_pid):
        super().__init__(msg, error_index, error_pid)


class ProcessExitedException(ProcessException):
    """A signal ended the process, or its exit code was not 0."""

    def __init__(self, msg, error_index, error_pid, exit_code, signal_name=None):
        super().__init__(msg, error_index, error_pid)
        self.exit_code = exit_code
        self.signal_name = signal_name

    def __reduce__(self):
        return type(self), (
            self.msg,
            self.error_index,
            self.error_pid,
            self.exit_code,
            self.signal_name,
        )


def _run(fn, index, args, reports):
    try:
        fn(index, *args)
    except KeyboardInterrupt:
        pass  # the parent gets the signal too
    except Exception:
        import traceback

        text = traceback.format_exc().encode("utf-8", "replace")[-_MOST_TEXT:]
        try:
            reports.send_bytes(text)
        except OSError:
            pass  # the parent has ended
        sys.exit(1)


class ProcessContext:
    """Processes that were started together."""

    def __init__(self, processes, reports):
        self.processes = processes
        self._reports = reports
        self.sentinels = {process.sentinel: i for i, process in enumerate(processes)}

    def pids(self):
        return [int(process.pid) for process in self.processes]

    def join(self, timeout=None, grace_period=None):
        """Wait for the processes. True: all have ended; False: some still run.

        Parameters
        ----------
        timeout : float or None, seconds to wait until the next process ends
        grace_period : float or None, seconds that the others have once one has failed

        Raises
        ------
        ProcessRaisedException, ProcessExitedException
            When all have ended, for the first process that failed.
        """
        if not self.sentinels:
            return True
        failed = None
        from .._cpython import connection

        for sentinel in connection.wait(list(self.sentinels), timeout):
            index = self.sentinels.pop(sentinel)
            process = self.processes[index]
            process.join()
            if process.exitcode != 0:
                failed = index
                break
        if failed is None:
            return not self.sentinels
        if grace_period is not None:
            self._wait_all(grace_period)
        self._end_all()
        self._raise(failed)

    def _wait_all(self, timeout):
        deadline = time.monotonic() + timeout
        for process in self.processes:
            process.join(max(deadline - time.monotonic(), 0))

    def _end_all(self):
        for process in self.processes:
            if process.is_alive():
                process.terminate()
        self._wait_all(_KILL_AFTER_S)
        for process in self.processes:
            if process.is_alive():
                process.kill()
            process.join()

    def _raise(self, index):
        process = self.processes[index]
        reports = self._reports[index]
        if reports.poll():
            try:
                text = reports.recv_bytes().decode("utf-8", "replace")
            except EOFError:
                pass  # the process closed the pipe without a report
            else:
                raise ProcessRaisedException(
                    f"\n\n-- Process {index} terminated with the following error:\n{text}",
                    index,
                    process.pid,
                )
        code = process.exitcode
        if code >= 0:
            raise ProcessExitedException(
                f"process {index} terminated with exit code {code}", index, process.pid, code
            )
        try:
            import signal

            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        raise ProcessExitedException(
            f"process {index} terminated with signal {name}", index, process.pid, code, name
        )


class SpawnContext(ProcessContext):
    """A ProcessContext of spawned processes."""


def start_processes(
    fn, args=(), nprocs=1, join=True, daemon=False, start_method="spawn", numa_options=None
):
    """Run fn(i, *args) in `nprocs` processes, i from 0. When one fails, the others are ended.

    join: wait for them, and return None; else return a ProcessContext.
    """
    if numa_options is not None:
        raise NotImplementedError("numa_options: start the processes under numactl instead")
    context = _context._default_context.get_context(start_method)
    processes, reports = [], []
    for index in range(nprocs):
        reader, writer = context.Pipe(duplex=False)
        process = context.Process(target=_run, args=(fn, index, args, writer), daemon=daemon)
        process.start()
        writer.close()
        processes.append(process)
        reports.append(reader)
    kind = SpawnContext if start_method == "spawn" else ProcessContext
    started = kind(processes, reports)
    if not join:
        return started
    while not started.join():
        pass


def spawn(fn, args=(), nprocs=1, join=True, daemon=False, start_method="spawn"):
    """Run fn(i, *args) in `nprocs` processes, i from 0; see start_processes()."""
    return start_processes(fn, args, nprocs, join, daemon, start_method)


def __getattr__(name):
    """The other names of the standard library's module."""
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .._cpython import spawn as _standard

    return getattr(_standard, name)


class _Module(types.ModuleType):
    """The class of this module, which can be called.

    `spawn` is a module in the standard library and a function in torch.multiprocessing.
    """

    def __call__(self, fn, args=(), nprocs=1, join=True, daemon=False, start_method="spawn"):
        """Run fn(i, *args) in `nprocs` processes, i from 0; see start_processes()."""
        return spawn(fn, args, nprocs, join, daemon, start_method)

    def __reduce__(self):
        return importlib.import_module, (self.__name__,)


sys.modules[__name__].__class__ = _Module
