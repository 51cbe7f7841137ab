# SPDX-License-Identifier: Apache-2.0
"""Each session has a runtime folder and a folder for named storages of its own; both are empty in the end.

With TENON_TAP set, the session says in the end what every test came to, as TAP.
"""

import fcntl
import os
import pathlib
import shutil
import signal
import tempfile

import pytest
from hypothesis import settings

settings.register_profile("tenon", database=None, deadline=None)
settings.load_profile("tenon")

_folder = pathlib.Path(tempfile.mkdtemp(prefix="tenon-python-"))
_storages = pathlib.Path(tempfile.mkdtemp(prefix="tenon-python-", dir="/dev/shm"))
os.environ["TENON_RUNTIME_DIR"] = str(_folder / "run")
os.environ["TENON_SHM_DIR"] = str(_storages)
os.environ.pop("TENON_STRATEGY", None)
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's `&` has it ignored

LEAVES_WITHIN_S = 20  # tenond waits a moment for new members before it ends


@pytest.fixture
def domain():
    """A domain of this test's own, whose audit finds nothing in the end."""
    from tenon import _core

    made = _core.Domain.create()
    yield made
    if not made.closed:
        made.reap()  # whoever ended without leaving
        assert made.audit() == []
        made.close()


def _context_of(method):
    import tenon.multiprocessing as mp

    return mp.get_context(method)


@pytest.fixture(params=["fork", "spawn", "forkserver"])
def context(request):
    return _context_of(request.param)


@pytest.fixture(params=["fork", "forkserver"])
def quick(request):
    """Contexts whose children begin at once: the server has imported what they import."""
    return _context_of(request.param)


@pytest.fixture
def fork():
    return _context_of("fork")


@pytest.fixture
def apart(fork):
    """Runs a function in a child, which may lower its own limits for ever."""

    def run(function):
        child = fork.Process(target=function)
        child.start()
        child.join(60)
        assert child.exitcode == 0

    return run


@pytest.fixture(params=["arena", "file_descriptor", "file_system"])
def strategy(request):
    """Each strategy in turn, for what this process makes."""
    from tenon import _core

    before = _core.get_strategy()
    _core.set_strategy(request.param)
    yield request.param
    _core.set_strategy(before)


def _left():
    """Files that tenon left; its lock stays by design, and is empty."""
    left = [path for path in _storages.rglob("*") if not path.is_dir()]
    run = _folder / "run"
    if run.exists():
        left += [path for path in run.iterdir() if not (path.name.startswith("tenond-") and path.suffix == ".lock")]
    return left


def _wait_for_the_end_of_tenond():
    """It ends by itself, and holds a lock until then."""
    locks = sorted((_folder / "run").glob("tenond-*.lock"))
    if not locks:
        return
    lock = open(locks[0])
    signal.signal(signal.SIGALRM, _stop_waiting)
    signal.alarm(LEAVES_WITHIN_S)
    try:
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
    except TimeoutError:
        pass  # what it left is found
    signal.alarm(0)


def _stop_waiting(*_):
    raise TimeoutError


_outcomes = {}


def _reason(report):
    """Why it was skipped, in one line, as TAP has it."""
    if isinstance(report.longrepr, tuple):
        return " ".join(report.longrepr[2].removeprefix("Skipped: ").split())
    return getattr(report, "wasxfail", "")


def pytest_runtest_logreport(report):
    """One outcome a test: the worst of its three phases."""
    name = report.nodeid.replace("#", "")
    if report.failed:
        _outcomes[name] = "not ok", ""
    elif report.skipped:
        _outcomes.setdefault(name, ("ok", f" # SKIP {_reason(report)}"))
    elif report.when == "call":
        _outcomes.setdefault(name, ("ok", ""))


def pytest_collectreport(report):
    """A file that cannot be read, or that all of is skipped."""
    if report.failed:
        _outcomes[report.nodeid] = "not ok", ""
    elif report.skipped:
        _outcomes[report.nodeid] = "ok", f" # SKIP {_reason(report)}"


def _print_tap():
    print(f"\n1..{len(_outcomes)}")
    for number, (name, (word, more)) in enumerate(_outcomes.items(), 1):
        print(f"{word} {number} - {name}{more}")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session, exitstatus):
    """Nothing is left, neither of memory nor of names, once this process has left its domain."""
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = pytest.ExitCode.OK  # all of it was skipped, and is counted as that
    from tenon import _core, _domain

    _domain.leave()
    _wait_for_the_end_of_tenond()
    left = [str(path) for path in _left()]
    domains = [found for found in _core.inspect_domains() if found["creator_pid"] == os.getpid()]
    shutil.rmtree(_folder, ignore_errors=True)
    shutil.rmtree(_storages, ignore_errors=True)
    _outcomes["nothing is left behind"] = "not ok" if left or domains else "ok", ""
    if left or domains:
        print(f"\nleft behind: {left}, domains: {domains}")
        session.exitstatus = 1
    if os.environ.get("TENON_TAP"):
        _print_tap()
