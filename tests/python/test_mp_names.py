# SPDX-License-Identifier: Apache-2.0
"""tenon.multiprocessing has the names of both packages that it stands in place of."""

import inspect
import multiprocessing as standard
import pickle
import pkgutil
import subprocess
import sys
import types

import pytest
import tenon.multiprocessing as mp

OF_TORCH = [
    "ENV_VAR_PARALLEL_START",
    "ProcessContext",
    "ProcessException",
    "ProcessExitedException",
    "ProcessRaisedException",
    "SpawnContext",
    "get_all_sharing_strategies",
    "get_sharing_strategy",
    "get_thread_name",
    "init_reductions",
    "set_sharing_strategy",
    "set_thread_name",
    "spawn",
    "start_processes",
]
OF_TORCHS_SPAWN = ["ProcessContext", "ProcessException", "SpawnContext", "start_processes"]


def run_script(text, *arguments):
    return subprocess.run(
        [sys.executable, "-c", text, *arguments], capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize("name", sorted({*standard.__all__, *OF_TORCH}))
def test_name_is_there(name):
    assert hasattr(mp, name)
    assert name in mp.__all__


def test_all_names_only_what_there_is():
    assert [name for name in mp.__all__ if not hasattr(mp, name)] == []


def imported(name):
    names = {}
    exec(f"import {name} as module", names)
    return names["module"]


@pytest.mark.parametrize("name", ["queue", "reductions", "spawn"])
def test_module_of_torch_is_there(name):
    assert isinstance(imported(f"tenon.multiprocessing.{name}"), types.ModuleType)


@pytest.mark.parametrize(
    "name", [found.name for found in pkgutil.iter_modules(standard.__path__)]
)
def test_module_of_the_standard_library_is_there(name):
    if name.endswith("win32"):
        with pytest.raises(ImportError):
            imported(f"tenon.multiprocessing.{name}")
        return
    theirs, ours = (imported(f"{package}.{name}") for package in (standard.__name__, mp.__name__))
    assert isinstance(ours, types.ModuleType)
    public = [name for name in dir(theirs) if not name.startswith("_")]
    assert [name for name in public if not hasattr(ours, name)] == []
    assert getattr(mp, name) is ours


def test_spawn_is_a_module_that_can_be_called():
    assert mp.spawn is sys.modules["tenon.multiprocessing.spawn"]
    assert [name for name in OF_TORCHS_SPAWN if not hasattr(mp.spawn, name)] == []
    assert inspect.signature(mp.spawn) == inspect.signature(mp.spawn.spawn)
    assert pickle.loads(pickle.dumps(mp.spawn)) is mp.spawn


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver", None])
def test_contexts_are_the_standard_librarys(method):
    context = mp.get_context(method)
    assert isinstance(context, standard.context.BaseContext)
    assert method in (None, context.get_start_method())


def test_context_of_no_such_method_is_refused():
    with pytest.raises(ValueError, match="thread"):
        mp.get_context("thread")


def test_start_methods_are_the_standard_librarys():
    assert mp.get_all_start_methods() == standard.get_all_start_methods()
    script = (
        "import multiprocessing as s, tenon.multiprocessing as m;"
        "print(m.get_start_method() == s.get_start_method())"
    )
    assert run_script(script).stdout == "True\n"


def test_the_start_method_is_set_once_and_only_for_this_package():
    script = (
        "import multiprocessing as s, tenon.multiprocessing as m\n"
        "m.set_start_method('forkserver')\n"
        "print(m.get_start_method(), s.get_start_method(allow_none=True))\n"
        "m.set_start_method('spawn', force=True)\n"
        "print(m.get_start_method())\n"
        "m.set_start_method('fork')\n"
    )
    result = run_script(script)
    assert result.stdout == "forkserver None\nspawn\n"
    assert "RuntimeError: context has already been set" in result.stderr


def test_strategies_are_those_of_the_system():
    before = mp.get_sharing_strategy()
    assert before in mp.get_all_sharing_strategies()
    for name in mp.get_all_sharing_strategies():
        mp.set_sharing_strategy(name)
        assert mp.get_sharing_strategy() == name
    mp.set_sharing_strategy(before)
    with pytest.raises(ValueError, match="no strategy 'floppy'"):
        mp.set_sharing_strategy("floppy")


def test_threads_can_be_named():
    before = mp.get_thread_name()
    mp.set_thread_name("reader")
    assert mp.get_thread_name() == "reader"
    mp.set_thread_name(before)


def test_queues_are_generic_in_annotations():
    for kind in (mp.queues.Queue, mp.queues.JoinableQueue, mp.queues.SimpleQueue):
        assert kind[int].__origin__ is kind


def test_modules_are_attributes_before_they_are_imported():
    looks = "mp.util.Finalize, mp.connection.wait, mp.reduction.ForkingPickler, mp.reductions"
    program = f"import tenon.multiprocessing as mp; {looks}"
    subprocess.run([sys.executable, "-c", program], check=True)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        mp.nothing


def test_bad_arguments_raise_what_the_standard_library_raises():
    calls = {
        "negative permits": lambda module: module.Semaphore(-1),
        "negative bounded permits": lambda module: module.BoundedSemaphore(-1),
        "permits that are no number": lambda module: module.Semaphore("a"),
        "too many permits": lambda module: module.Semaphore(2**40),
        "too large a queue": lambda module: module.Queue(2**40),
    }
    for name, call in calls.items():
        raised = []
        for module in (standard, mp):
            with pytest.raises(Exception) as caught:
                call(module)
            raised.append(caught.type)
        assert raised[0] is raised[1], name


def test_a_thread_may_be_named_as_pytorchs_workers_do():
    before = mp.get_thread_name()
    mp._set_thread_name("pt_data_worker")
    assert mp._get_thread_name() == "pt_data_worker"
    mp.set_thread_name(before)
