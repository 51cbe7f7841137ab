# SPDX-License-Identifier: Apache-2.0
"""install() and uninstall(), and the storages that PyTorch must have for it."""

import ctypes
import subprocess
import sys
import textwrap
from multiprocessing.reduction import ForkingPickler

import pytest

torch = pytest.importorskip("torch")

import tenon.multiprocessing as mp  # noqa: E402
import tenon.torch  # noqa: E402
from tenon import _core, _torch_file, _torch_private, _torch_storage  # noqa: E402
from tenon._torch_private import typed, untyped  # noqa: E402

REPLACED = ["share_memory_", "is_shared", "_new_shared"]
if hasattr(torch.UntypedStorage, "filename"):
    REPLACED.append("filename")
REDUCED = (torch.Tensor, torch.nn.Parameter, torch.UntypedStorage)


@pytest.fixture(autouse=True)
def installed_again():
    yield
    tenon.torch.install()


def present():
    names = {name: vars(torch.UntypedStorage).get(name) for name in REPLACED}
    return names, [ForkingPickler._extra_reducers[kind] for kind in REDUCED]


def lies_in_tenon(tensor):
    return _torch_storage.find(untyped(tensor)) is not None


def test_uninstall_puts_back_what_install_replaced():
    tenon.torch.uninstall()
    before = present()
    assert not tenon.torch.is_installed()
    tenon.torch.install()
    tenon.torch.install()
    assert tenon.torch.is_installed() and all(present()[0].values()) and present() != before
    tenon.torch.uninstall()
    tenon.torch.uninstall()
    assert present() == before and not tenon.torch.is_installed()


def test_after_uninstall_tensors_travel_as_pytorch_sends_them():
    tenon.torch.uninstall()
    queue, tensor = mp.SimpleQueue(), torch.arange(3.0)
    queue.put(tensor)
    arrived = queue.get()
    assert tensor.is_shared() and not lies_in_tenon(tensor) and not lies_in_tenon(arrived)
    arrived[0] = 5
    assert tensor.tolist() == [5, 1, 2]


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_what_pytorch_shares_from_then_on_is_tenons():
    tenon.torch.install()
    module = torch.nn.Linear(2, 2).share_memory()
    made = torch.UntypedStorage._new_shared(40)
    of_floats = typed(torch.ones(2))._new_shared(5)
    assert all(map(lies_in_tenon, (torch.ones(3).share_memory_(), module.weight, module.bias)))
    assert made.is_shared() and made.nbytes() == 40
    assert of_floats.is_shared() and of_floats.nbytes() == 20
    assert torch.UntypedStorage._new_shared(0).nbytes() == 0
    assert torch.UntypedStorage._new_shared(4, device="meta").device.type == "meta"
    assert torch.ones(2, device="meta").share_memory_().is_meta
    uninstalled = torch.UntypedStorage(8)
    assert not uninstalled.is_shared()


def run(program):
    """In a process that has imported nothing yet."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout.split()


def test_the_first_message_installs_it_once_pytorch_is_there():
    assert run("""
        import sys, tenon
        from tenon import _core
        queue = _core.Queue.create(tenon.domain())
        queue.put({"no": "tensor"}); queue.get()
        print("tenon.torch" in sys.modules)
        import torch, tenon.multiprocessing as mp
        from torch.utils.data import DataLoader
        context = mp.get_context("fork")
        loader = DataLoader(range(6), 2, num_workers=1, multiprocessing_context=context)
        print(*(batch.sum().item() for batch in loader))
        tensor = torch.zeros(3)
        queue.put([tensor])
        queue.get()[0][1] = 4
        print(tensor.is_shared(), tensor[1].item(), sys.modules["tenon.torch"].is_installed())
        queue.close()
        tenon.domain().close()
    """) == ["False", "1", "5", "9", "True", "4.0", "True"]


def test_without_the_expected_storages_nothing_is_changed():
    assert run("""
        import warnings, torch, tenon.torch, tenon
        from tenon import _core
        _core.swap_words = lambda one, other, count: None  # as if the words lay elsewhere
        before = dict(vars(torch.UntypedStorage))
        try:
            tenon.torch.install()
        except NotImplementedError as error:
            print(torch.__version__ in str(error))
        queue = _core.Queue.create(tenon.domain())
        tensor = torch.zeros(3)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            queue.put(tensor)
        arrived = queue.get()
        arrived[1] = 4
        print(tensor[1].item(), len(warned), warned[0].category.__name__)
        print(tenon.torch.is_installed(), dict(vars(torch.UntypedStorage)) == before)
        queue.close()
        tenon.domain().close()
    """) == ["True", "4.0", "1", "RuntimeWarning", "False", "True"]


def test_a_version_without_such_storages_is_refused_by_name():
    assert run("""
        import torch, tenon
        del torch.UntypedStorage
        try:
            import tenon.torch
        except ImportError as error:
            print(torch.__version__ in str(error), "too old" in str(error))
    """) == ["True", "True"]


# ---- the exchange of words


def test_the_words_are_found_by_trying():
    assert _torch_private.find_words() == _torch_private.words_at


@pytest.mark.parametrize("count", [0, 1, 2, 3, 5])
def test_an_exchange_that_is_not_whole_is_seen_and_undone(count, monkeypatch):
    exchange = _core.swap_words
    one, other = torch.UntypedStorage(64).fill_(1), _torch_private.lent_storage(2)[0]
    small = torch.UntypedStorage(_torch_private.TRIED_BYTES).fill_(3)
    looks = _torch_private.looks(small), _torch_private.looks(other)
    monkeypatch.setattr(_core, "swap_words", lambda a, b, _: exchange(a, b, count))
    assert not _torch_private.try_swap(small, other, _torch_private.locate(small))
    assert (_torch_private.looks(small), _torch_private.looks(other)) == looks
    assert _torch_private.find_words() is None
    assert one[0] == 1


def test_memory_that_is_not_given_back_is_seen(monkeypatch):
    kept = []
    lent = _torch_private.lent_storage

    def lend(fill):
        storage, witness = lent(fill)
        kept.append(witness())  # somebody else keeps it
        return storage, witness

    monkeypatch.setattr(_torch_private, "lent_storage", lend)
    assert _torch_private.find_words() is None


def test_a_storage_that_cannot_be_located_is_seen():
    own, (lent, _) = (
        torch.UntypedStorage(_torch_private.TRIED_BYTES),
        _torch_private.lent_storage(1),
    )
    assert not _torch_private.try_swap(own, lent, None)
    assert not _torch_private.try_swap(own, lent, _torch_private.locate(own) + 1)


# ---- what older versions of PyTorch do not tell; looked up in all of them


def test_a_loan_is_seen_in_the_flags_of_a_storage():
    flag = _torch_private.find_flag()
    own, lent = torch.UntypedStorage(8), _torch_private.lent_storage(1)[0]
    for storage, expected in (own, True), (lent, False):
        assert ctypes.c_bool.from_address(storage._cdata + flag).value is expected
        assert _torch_private.is_resizable(storage) is expected


def test_the_file_that_is_a_storage_is_found(tmp_path):
    for name, shared in ("a name of words", True), ("copied", False):
        file = tmp_path / name
        file.write_bytes(bytes(8))
        storage = torch.UntypedStorage.from_file(str(file), shared, 8)
        assert _torch_file.mapped_file(storage) == (str(file) if shared else None)
        file.unlink()
        assert _torch_file.mapped_file(storage) is None
    assert _torch_file.mapped_file(torch.UntypedStorage(8)) is None
