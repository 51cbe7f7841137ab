# SPDX-License-Identifier: Apache-2.0
"""PyTorch's tensors between processes: what torch.multiprocessing does, and what it may not."""

import gc
import os
import pathlib
import signal
import threading
import warnings
import weakref

import pytest

numpy = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")
# PyTorch warns of what of it is new, old or unchecked, wherever it is used.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

import tenon  # noqa: E402
import tenon.multiprocessing as mp  # noqa: E402
import tenon.torch  # noqa: E402
from tenon import _core, _torch_reduce, _torch_storage  # noqa: E402
from tenon._torch_private import untyped  # noqa: E402

WITHIN_S = 60
FORK = mp.get_context("fork")


def need(name):
    """Skip a test of what only newer versions of PyTorch have."""
    if not hasattr(torch, name):
        pytest.skip(f"PyTorch {torch.__version__} has no torch.{name}")


@pytest.fixture(autouse=True, scope="module")
def installed():
    tenon.torch.install()


@pytest.fixture
def queue():
    made = FORK.SimpleQueue()
    yield made
    made.close()


def trip(value):
    """Through a queue, in this process."""
    queue = FORK.Queue()
    queue.put(value, timeout=WITHIN_S)
    return queue.get(timeout=WITHIN_S)


def end(process, expected=0):
    process.join(WITHIN_S)
    assert process.exitcode == expected


def in_child(function, *arguments):
    process = FORK.Process(target=function, args=arguments)
    process.start()
    end(process)


def same_storage(one, other):
    return untyped(one)._cdata == untyped(other)._cdata


def through_child(value):
    """To a child and back; both copies are forgotten in between, so that it arrives anew."""
    there, back = FORK.Queue(), FORK.Queue()

    def child():
        _torch_storage.storages._entries.clear()
        back.put(there.get(timeout=WITHIN_S))

    there.put(value)
    in_child(child)
    return back.get(timeout=WITHIN_S)


# ---- one memory


def fill(queue, back, rounds):
    for _ in range(rounds):
        tensor, column = queue.get(timeout=WITHIN_S)
        tensor.fill_(4)
        column.fill_(7)
        back.put((tensor, column))


def test_a_child_fills_what_it_was_sent_and_the_sender_sees_it(strategy):
    rounds = 30
    queue, back = FORK.Queue(), FORK.Queue()
    process = FORK.Process(target=fill, args=(queue, back, rounds))
    process.start()
    for _ in range(rounds):
        tensor = torch.zeros(5, 5)
        queue.put((tensor, tensor[:, 1]))
        again, column = back.get(timeout=WITHIN_S)
        assert same_storage(again, tensor) and same_storage(column, tensor)
        assert tensor.eq(4).sum() == 20 and tensor[:, 1].eq(7).all()
    end(process)


def send_twice(queue, tensor):
    queue.put(tensor)
    queue.put(tensor)


def test_a_tensor_sent_twice_arrives_as_one_storage(strategy, queue):
    process = FORK.Process(target=send_twice, args=(queue, torch.arange(4.0)))
    process.start()
    one, other = queue.get(), queue.get()
    end(process)
    assert same_storage(one, other) and one.data_ptr() == other.data_ptr()
    assert one.tolist() == [0, 1, 2, 3]


def test_storage_tensor_row_and_column_keep_one_identity(strategy):
    tensor = torch.zeros(5, 5)
    row, column, storage = tensor[2], tensor[:, 3], untyped(tensor)
    arrived = [trip(sent) for sent in (storage, tensor, row, column, tensor.storage())]
    views = [untyped(view) for view in arrived[1:4]]
    assert {s._cdata for s in (arrived[0], *views, arrived[4].untyped())} == {storage._cdata}
    arrived[1].fill_(5)
    assert row.eq(5).all() and column.eq(5).all() and arrived[2].eq(5).all()


def work(tensor):
    tensor.add_(1)
    return tensor.new_full((3,), float(tensor[0]))


def test_pool_workers_change_tensors_and_return_new_ones(strategy):
    tensors = [torch.full((3,), float(i)) for i in range(4)]
    with FORK.Pool(2) as pool:
        results = pool.map(work, tensors)
    assert [tensor.tolist() for tensor in tensors] == [[i + 1.0] * 3 for i in range(4)]
    assert [result.tolist() for result in results] == [[i + 1.0] * 3 for i in range(4)]


def storage_files():
    folder = pathlib.Path(os.environ["TENON_SHM_DIR"])
    return {path for path in folder.rglob("*") if path.is_file()}


def test_a_named_storage_has_a_file_until_its_last_holder_ends():
    before, strategy = storage_files(), _core.get_strategy()
    queue = FORK.Queue()
    try:
        _core.set_strategy("file_system")
        queue.put(torch.ones(1000))
    finally:
        _core.set_strategy(strategy)
    made = storage_files() - before
    assert len(made) == 1
    tensor = queue.get(timeout=WITHIN_S)
    assert tensor.sum() == 1000 and made <= storage_files()
    del tensor
    gc.collect()
    assert not made & storage_files()


class Adder(FORK.Process):
    def __init__(self, tensor):
        super().__init__()
        self.tensor = tensor

    def run(self):
        self.tensor.add_(3)


def test_a_process_inherits_a_shared_tensor(strategy):
    tensor = torch.zeros(5).share_memory_()
    assert tensor.is_shared()
    process = Adder(tensor)
    process.start()
    end(process)
    assert tensor.tolist() == [3.0] * 5


def send_and_delete(queue, done):
    for i in range(5):
        tensor = torch.full((1000,), float(i))
        queue.put(tensor)
        del tensor
    done.wait(WITHIN_S)


def test_what_a_producer_deletes_at_once_is_whole_at_the_consumer(strategy):
    queue, done = FORK.Queue(), FORK.Event()
    process = FORK.Process(target=send_and_delete, args=(queue, done))
    process.start()
    held = [queue.get(timeout=WITHIN_S) for _ in range(5)]
    assert [tensor.unique().tolist() for tensor in held] == [[float(i)] for i in range(5)]
    done.set()
    end(process)


def drop_states(queue, rounds):
    for _ in range(rounds):
        queue.get(timeout=WITHIN_S)


def test_state_dicts_through_a_queue_of_one_do_not_block():
    queue = FORK.Queue(1)
    process = FORK.Process(target=drop_states, args=(queue, 100))
    process.start()
    module = torch.nn.Linear(8, 8)
    for _ in range(100):
        queue.put(module.state_dict(), timeout=WITHIN_S)
    end(process)


def pass_on(there, back, count):
    for _ in range(count):
        back.put(there.get(timeout=WITHIN_S))


def send_numbered(queue, count):
    for i in range(count):
        queue.put(torch.full((5,), float(i)))


def test_thousands_of_tensors_go_through_three_processes():
    count = 3000
    one, two = FORK.Queue(50), FORK.Queue(50)
    processes = [
        FORK.Process(target=send_numbered, args=(one, count)),
        FORK.Process(target=pass_on, args=(one, two, count)),
    ]
    for process in processes:
        process.start()
    total = sum(float(two.get(timeout=WITHIN_S)[4]) for _ in range(count))
    for process in processes:
        end(process)
    assert total == count * (count - 1) / 2


# ---- kinds of tensors


def kinds():
    """Tensors of every kind, by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch says of some that they are new, or old
        return dict(make_kinds())


def make_kinds():
    complex_ones = torch.randn(4, dtype=torch.complex64)
    yield "of no axes", torch.tensor(3.5)
    yield "of int64", torch.arange(7)
    yield "of bool", torch.tensor([True, False, True])
    yield "of bfloat16", torch.randn(5).bfloat16()
    yield "of float16", torch.randn(5).half()
    for name in "float8_e4m3fn", "uint16":
        if hasattr(torch, name):
            yield f"of {name}", torch.arange(5.0).to(getattr(torch, name))
    yield "complex", complex_ones
    yield "conjugated", complex_ones.conj()
    yield "conjugated and negated", complex_ones.conj().imag
    yield "expanded", torch.randn(3, 1).expand(3, 1000)
    yield "not contiguous", torch.randn(6, 5).t()[1::2]
    yield "in channels last", torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    yield "from an array", torch.from_numpy(numpy.arange(4.0))
    yield (
        "quantized per tensor",
        torch.quantize_per_tensor(torch.randn(6), 0.1, 3, torch.quint8),
    )
    yield (
        "quantized per channel",
        torch.quantize_per_channel(
            torch.randn(2, 3), torch.tensor([0.1, 0.2]), torch.tensor([0, 1]), 0, torch.qint8
        ),
    )
    yield "nested", torch.nested.nested_tensor([torch.randn(2), torch.randn(3)])
    if hasattr(torch, "jagged"):
        parts = [torch.randn(2), torch.randn(3)]
        yield "jagged", torch.nested.nested_tensor(parts, layout=torch.jagged)
    yield "sparse COO", torch.eye(4).to_sparse()
    yield (
        "sparse COO, not coalesced",
        torch.sparse_coo_tensor([[0, 0], [1, 1]], [1.0, 2.0], (2, 2)),
    )
    for layout, block in ("csr", None), ("csc", None), ("bsr", (2, 2)), ("bsc", (2, 2)):
        made = getattr(torch.eye(4), f"to_sparse_{layout}")
        yield f"sparse {layout}", made(block) if block else made()


def facts(tensor):
    """What makes a tensor what it is, to be compared."""
    known = {
        "type": type(tensor),
        "dtype": tensor.dtype,
        "layout": tensor.layout,
        "grad": tensor.requires_grad,
    }
    if tensor.is_nested:
        return {**known, "parts": [facts(part) for part in tensor.unbind()]}
    known.update(shape=tuple(tensor.shape))
    if tensor.layout is torch.sparse_coo:
        dense = tensor.to_dense()
        return {**known, "coalesced": tensor.is_coalesced(), "values": dense.tolist()}
    if tensor.layout is not torch.strided:
        return {**known, "values": tensor.to_dense().tolist()}
    known.update(
        strides=tensor.stride(),
        offset=tensor.storage_offset(),
        conj=tensor.is_conj(),
        neg=tensor.is_neg(),
    )
    if tensor.is_quantized:
        return {**known, "scheme": tensor.qscheme(), "values": tensor.dequantize().tolist()}
    shown = tensor.float() if "float8" in str(tensor.dtype) else tensor
    return {**known, "values": shown.tolist(), "storage": untyped(tensor).nbytes()}


@pytest.mark.parametrize("tensor", [pytest.param(t, id=name) for name, t in kinds().items()])
def test_a_tensor_arrives_as_it_was(tensor):
    assert facts(through_child(tensor)) == facts(tensor)


@pytest.mark.parametrize("tensor", [pytest.param(t, id=name) for name, t in kinds().items()])
def test_default_device_does_not_change_what_arrives(tensor, queue):
    need("set_default_device")
    queue.put(tensor)
    with torch.device("meta"):
        arrived = queue.get()
    assert arrived.device == tensor.device and facts(arrived) == facts(tensor)


def test_kinds_of_tensors_arrive_in_one_message(strategy):
    sent = kinds()
    arrived = through_child(sent)
    assert {name: facts(t) for name, t in arrived.items()} == {
        name: facts(t) for name, t in sent.items()
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_an_empty_tensor_arrives_empty(dtype):
    for sent in (
        torch.empty(0, dtype=dtype),
        torch.empty(3, 0, dtype=dtype),
        torch.ones(4, dtype=dtype)[4:],
    ):
        arrived = through_child(sent)
        assert (arrived.dtype, arrived.shape) == (dtype, sent.shape)


def test_an_empty_tensor_may_be_shared():
    tensor = torch.tensor([])
    assert tensor.share_memory_() is tensor and tensor.is_shared()


def test_a_meta_tensor_arrives_without_data():
    for sent in (
        torch.empty(0, device="meta"),
        torch.ones(1, device="meta"),
        torch.ones(5, 5, device="meta").t()[2:],
    ):
        arrived = through_child(sent)
        assert (
            arrived.is_meta
            and arrived.shape == sent.shape
            and arrived.stride() == sent.stride()
            and arrived.storage_offset() == sent.storage_offset()
            and untyped(arrived).nbytes() == untyped(sent).nbytes()
        )
    with pytest.raises(RuntimeError, match="meta"):
        trip(untyped(torch.ones(1, device="meta")))


def test_the_parts_of_a_sparse_tensor_are_shared():
    coo, csr = torch.eye(3).to_sparse(), torch.eye(3).to_sparse_csr()
    for tensor, values in (coo, coo._values()), (csr, csr.values()):
        arrived = through_child(tensor)
        (arrived._values() if tensor is coo else arrived.values())[0] = 8
        assert values[0] == 8 and tenon.torch.is_shared(tensor)


def test_the_values_of_a_nested_tensor_are_shared():
    tensor = torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)])
    through_child(tensor).values()[1] = 6
    assert tensor.values().tolist() == [0, 6, 0, 0, 0]


class Tagged(torch.Tensor):
    pass


def test_a_subclass_keeps_its_type_its_attributes_and_its_memory():
    tensor = torch.zeros(3).as_subclass(Tagged)
    tensor.tag = "seen"
    arrived = through_child(tensor)
    arrived[1] = 2
    assert type(arrived) is Tagged and arrived.tag == "seen" and tensor[1] == 2


def test_storages_travel_themselves():
    typed, bare = torch.arange(3.0).storage(), untyped(torch.arange(3))
    arrived = through_child([typed, bare, torch.FloatStorage([1, 2])])
    assert list(arrived[0]) == [0, 1, 2] and arrived[0].dtype == torch.float32
    arrived[1][0] = 9
    assert bare[0] == 9 and list(arrived[2]) == [1, 2]


def test_what_is_no_tensor_travels_as_a_pickle():
    sent = [
        torch.Size([2, 3]),
        torch.float32,
        torch.strided,
        torch.device("cpu"),
        torch.Generator().get_state(),
    ]
    arrived = through_child(sent)
    assert (
        arrived[:4] == sent[:4]
        and type(arrived[0]) is torch.Size
        and torch.equal(arrived[4], sent[4])
    )


def test_what_cannot_be_shared_is_refused_by_name(queue):
    for tensor, word in (
        (torch.ones(3).to_mkldnn(), "mkldnn"),
        (torch._efficientzerotensor((3,)), "no memory"),
    ):
        with pytest.raises(NotImplementedError, match=word):
            queue.put(tensor)
    queue.put("still open")
    assert queue.get() == "still open"


# ---- autograd


def learn_from(tensor, queue):
    tensor.add_(1)
    queue.put(
        (
            type(tensor),
            tensor.requires_grad,
            tensor.grad is None,
            tensor._backward_hooks is None,
        )
    )


def test_writes_are_seen_and_grad_and_hooks_stay(queue):
    plain, leaf = torch.zeros(5), torch.zeros(5, requires_grad=True)
    parameter = torch.nn.Parameter(torch.zeros(5))
    for tensor in (leaf, parameter):
        tensor.grad = torch.ones(5)
        tensor.register_hook(lambda grad: grad)
    for sent in (plain, leaf, parameter):
        there = FORK.SimpleQueue()
        there.put(sent)
        process = FORK.Process(target=lambda: learn_from(there.get().detach(), queue))
        process.start()
        assert queue.get() == (torch.Tensor, False, True, True)
        end(process)
        assert sent.tolist() == [1] * 5
        arrived = through_child(sent)
        assert type(arrived) is type(sent) and arrived.requires_grad is sent.requires_grad
        assert arrived.grad is None and arrived.is_leaf and not arrived._backward_hooks
        sent.data.add_(1)
        assert arrived.tolist() == [2] * 5


def test_a_tensor_that_is_no_leaf_is_refused_in_the_sender(queue):
    product = torch.ones(3, requires_grad=True) * 2
    with pytest.raises(RuntimeError, match="not a leaf.*detach"):
        queue.put(product)
    queue.put(product.detach())
    assert queue.get().tolist() == [2, 2, 2]


def backward(_):
    leaf = torch.ones(3, requires_grad=True)
    (leaf * 2).sum().backward()
    return leaf.grad


def test_a_forked_child_computes_gradients():
    with FORK.Pool(2) as pool:
        assert [grad.tolist() for grad in pool.map(backward, range(3))] == [[2.0] * 3] * 3


def train(module, seed, steps):
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.05)
    for _ in range(steps):
        inputs = torch.randn(16, 4)
        loss = ((module(inputs) - inputs.sum(1, keepdim=True)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def test_several_processes_train_one_module_without_locks(strategy):
    torch.manual_seed(1)
    module = torch.nn.Sequential(
        torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)
    )
    assert module.share_memory() is module
    assert all(tensor.is_shared() for tensor in module.state_dict().values())
    inputs = torch.randn(256, 4)

    def loss():
        with torch.no_grad():
            return float(((module(inputs) - inputs.sum(1, keepdim=True)) ** 2).mean())

    before = loss()
    processes = [FORK.Process(target=train, args=(module, seed, 150)) for seed in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        end(process)
    assert loss() < before / 10


# ---- processes that begin anew


def begin_anew(tensors, parameter, module, sparse, there, back):
    """What a process is given, all in one, since PyTorch takes its time to be imported."""
    for tensor in tensors:
        tensor.add_(1)
    assert (
        not parameter.requires_grad
        and parameter.dtype == torch.int64
        and type(parameter) is torch.nn.Parameter
    )
    assert parameter.tolist() == [0, 1, 2] and sparse.is_coalesced()
    with torch.no_grad():
        module.weight.fill_(2)
    assert tenon.torch.is_installed() and module.weight.is_shared()
    back.put(backward(None))
    received = there.get(timeout=WITHIN_S)
    received["column"].fill_(7)
    back.put([facts(received[name]) for name in sorted(received)])
    back.put((received["whole"], tensors[0], torch.full((4,), 3.0)))


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_process_that_begins_anew_shares_what_it_is_given(method):
    context = mp.get_context(method)
    context.set_forkserver_preload(["torch"])
    there, back = context.Queue(), context.Queue()
    tensors, module = [torch.zeros(3)], torch.nn.Linear(2, 2)
    for strategy in _core.strategies():
        shared = tenon.zeros((3,), "float32", strategy=strategy)
        tensors.append(tenon.torch.to_torch(shared))
    parameter = torch.nn.Parameter(torch.arange(3), requires_grad=False)
    process = context.Process(
        target=begin_anew,
        args=(tensors, parameter, module, torch.eye(2).to_sparse().coalesce(), there, back),
    )
    process.start()
    sent = kinds()
    sent["whole"] = torch.zeros(3, 3)
    sent["column"] = sent["whole"][:, 1]
    there.put(sent)
    assert back.get(timeout=WITHIN_S).tolist() == [2.0] * 3
    assert back.get(timeout=WITHIN_S) == [facts(sent[name]) for name in sorted(sent)]
    whole, again, made = back.get(timeout=WITHIN_S)
    assert (
        same_storage(whole, sent["whole"])
        and same_storage(again, tensors[0])
        and made.tolist() == [3.0] * 4
    )
    end(process)
    assert all(tensor.tolist() == [1] * 3 for tensor in tensors)
    assert sent["whole"].sum() == 21 and module.weight.eq(2).all()


# ---- what is shared


def test_a_tensor_is_shared_once_it_was_moved(strategy):
    tensor = torch.ones(5, 5)
    view = tensor[1]
    assert not tensor.is_shared() and not tenon.torch.is_shared(view)
    assert tensor.share_memory_() is tensor
    address = tensor.data_ptr()
    assert tensor.is_shared() and view.is_shared() and tenon.torch.is_shared(tensor)
    assert tensor.share_memory_().data_ptr() == address and tensor.sum() == 25
    with pytest.raises(RuntimeError, match="resizable"):
        tensor.resize_(1000)


def test_a_module_is_shared_with_its_buffers():
    module = torch.nn.BatchNorm1d(3)
    assert tenon.torch.share_memory(module) is module
    assert all(map(tenon.torch.is_shared, module.state_dict().values()))
    with pytest.raises(RuntimeError, match="no shape"):
        tenon.torch.share_memory(torch.nn.LazyLinear(2))
    with pytest.raises(TypeError, match="list"):
        tenon.torch.share_memory([])


def test_a_storage_shares_only_once_what_many_views_show():
    huge = torch.zeros(1 << 20)
    before = tenon.inspect().live_bytes
    arrived = through_child([huge[i : i + 1] for i in range(500)])
    assert len({untyped(view)._cdata for view in arrived}) == 1
    assert tenon.inspect().live_bytes - before < 2 * untyped(huge).nbytes()


def test_an_array_of_numpys_outlives_the_move():
    tensor = torch.arange(1000.0)
    array = tensor.numpy()
    trip(tensor)[0] = 5
    gc.collect()
    assert tensor[0] == 5 and array[1:].tolist() == list(map(float, range(1, 1000)))


class Witness(bytearray):
    """Its end is seen by a weak reference."""


def test_memory_that_was_lent_to_a_tensor_ends_with_it():
    lender = Witness(32)
    ended = weakref.ref(lender)
    tensor = torch.frombuffer(lender, dtype=torch.int64)
    del lender
    assert trip(tensor[1:]).data_ptr() == tensor.data_ptr() + 8
    view = tensor[2]
    del tensor
    gc.collect()
    assert ended() is not None and view == 0
    del view
    gc.collect()
    assert ended() is None


def test_a_lazy_copy_is_made_before_it_is_shared():
    need("_lazy_clone")
    original = torch.zeros(4)
    lazy = torch._lazy_clone(original)
    trip(lazy)[1] = 3
    assert lazy.tolist() == [0, 3, 0, 0] and original.sum() == 0


def test_what_pytorch_shares_itself_stays_its_own(tmp_path):
    tenon.torch.uninstall()
    try:
        theirs = torch.zeros(3).share_memory_()
    finally:
        tenon.torch.install()
    file = tmp_path / "numbers"
    file.write_bytes(bytes(16))
    mapped = torch.from_file(str(file), shared=True, size=4)
    private = torch.from_file(str(file), shared=False, size=4)
    addresses = theirs.data_ptr(), mapped.data_ptr()
    there = FORK.SimpleQueue()
    there.put([theirs, mapped, private])

    def child():
        for tensor in there.get():
            tensor.add_(1)

    in_child(child)
    assert (theirs.data_ptr(), mapped.data_ptr()) == addresses
    assert theirs.sum() == 3 and mapped.sum() == 4 and private.sum() == 4
    assert numpy.fromfile(file, numpy.float32).sum() == 4


def numbers_in(file, count=4):
    """A file of ones, and a tensor over it."""
    file.write_bytes(bytes(numpy.ones(count, numpy.float32)))
    return torch.from_file(str(file), shared=True, size=count)


def move_away(file):
    return file.rename(file.with_suffix(".old"))


def replace(file):
    """With another file, which may have the inode of the first one where nobody has that open."""
    file.unlink()
    file.write_bytes(bytes(4096))


def cut_short(file):
    os.truncate(file, 15)


CHANGES = [
    (pathlib.Path.unlink, tenon.NotFound),
    (move_away, tenon.NotFound),
    (lambda file: move_away(file.parent), tenon.NotFound),
    (replace, tenon.Corrupt),
    (cut_short, tenon.Corrupt),
]


def contents(folder):
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path: path.read_bytes() for path in files}


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("change, error", CHANGES)
def test_a_file_that_is_no_longer_as_sent_is_an_error(tmp_path, queue, change, error, kept):
    file = tmp_path / "folder" / "numbers"
    file.parent.mkdir()
    tensor = numbers_in(file)
    queue.put(tensor)
    queue.put("the next one")
    if not kept:
        del tensor
    change(file)
    before = contents(tmp_path)
    with pytest.raises(error, match=str(file)):
        queue.get()
    assert contents(tmp_path) == before
    assert queue.get() == "the next one"


def replace_by_itself(file):
    """Write a file anew, and put it in the place of the first one, as editors do."""
    other = file.with_suffix(".new")
    other.write_bytes(file.read_bytes())
    other.rename(file)


@pytest.mark.parametrize(
    "change, error",
    [
        (pathlib.Path.unlink, tenon.NotFound),
        (replace, tenon.NotFound),
        (replace_by_itself, tenon.NotFound),
        (cut_short, tenon.Corrupt),
    ],
)
def test_a_file_without_its_name_or_bytes_cannot_be_sent(tmp_path, queue, change, error):
    file = tmp_path / "numbers"
    tensor = numbers_in(file)
    change(file)
    before = contents(tmp_path)
    with pytest.raises(error, match=str(file)):
        queue.put(tensor)
    assert contents(tmp_path) == before
    assert queue.empty()


@pytest.mark.parametrize("name", ["two words", "line\nline", os.fsdecode(b"caf\xe9"), "a (deleted)"])
def test_a_file_of_any_name_is_sent_where_it_is_now(tmp_path, queue, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    tensor = numbers_in(pathlib.Path("numbers"))
    file = (tmp_path / "numbers").rename(tmp_path / name)
    monkeypatch.chdir("/")
    queue.put(tensor)
    arrived = queue.get()
    queue.put(arrived)
    again = queue.get()
    again[0] = 5
    assert tensor[0] == arrived[0] == numpy.fromfile(file, numpy.float32)[0] == 5
    if hasattr(torch.UntypedStorage, "filename"):
        assert untyped(again).filename == str(file)


def test_files_that_are_sent_take_no_descriptors(tmp_path, queue):
    tensor = numbers_in(tmp_path / "numbers")
    before = os.listdir("/proc/self/fd")
    kept = []
    for _ in range(4):
        queue.put(tensor)
        kept.append(queue.get())
    assert os.listdir("/proc/self/fd") == before


def test_a_file_of_bools_is_copied_into_tenons_memory(tmp_path):
    file = tmp_path / "bools"
    file.write_bytes(bytes([0, 0, 1] * 4))
    theirs = torch.from_file(str(file), shared=True, size=12, dtype=torch.bool).view(4, 3)
    copy = tenon.torch.from_torch(theirs[:, 1:])
    copy[0, 0] = True
    assert copy.tolist() == [[True, True]] + [[False, True]] * 3 and not theirs[0, 1]


# ---- what is not tested elsewhere


def put_and_be_killed(queue):
    queue.put(torch.full((100,), 6.0))
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_message_outlives_a_producer_that_is_killed(strategy):
    queue = FORK.Queue()
    process = FORK.Process(target=put_and_be_killed, args=(queue,))
    process.start()
    end(process, -signal.SIGKILL)
    assert queue.get(timeout=WITHIN_S).sum() == 600


def hold_and_be_killed(queue):
    queue.get(timeout=WITHIN_S).fill_(4)
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_consumer_that_is_killed_takes_nothing_along(strategy):
    queue, tensor = FORK.Queue(), torch.zeros(100)
    process = FORK.Process(target=hold_and_be_killed, args=(queue,))
    process.start()
    queue.put(tensor)
    end(process, -signal.SIGKILL)
    assert tensor.eq(4).all() and trip(tensor).eq(4).all()


def test_a_tensor_is_passed_on_along_a_chain():
    tensor, queues = torch.zeros(3), [FORK.Queue() for _ in range(4)]

    def link(i):
        received = queues[i].get(timeout=WITHIN_S)
        received.add_(1)
        queues[i + 1].put(received)

    processes = [FORK.Process(target=link, args=(i,)) for i in range(3)]
    for process in processes:
        process.start()
    queues[0].put(tensor)
    last = queues[3].get(timeout=WITHIN_S)
    for process in processes:
        end(process)
    assert same_storage(last, tensor) and tensor.tolist() == [3] * 3


def test_threads_that_send_views_of_one_storage_share_it_once(strategy):
    for _ in range(20):
        tensor = torch.zeros(64)
        queue, start = FORK.Queue(), threading.Barrier(8)

        def send(i, tensor=tensor, queue=queue, start=start):
            start.wait()
            queue.put(tensor[i : i + 1])

        threads = [threading.Thread(target=send, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for _ in range(8):
            queue.get(timeout=WITHIN_S).add_(1)
        assert tensor.sum() == 8


def test_tensors_take_no_descriptor_each():
    tensors = [torch.ones(10) for _ in range(300)]
    before = len(os.listdir("/proc/self/fd"))
    arrived = [through_child(tensors[:150]), through_child(tensors[150:])]
    assert len(os.listdir("/proc/self/fd")) < before + 60
    assert sum(float(tensor.sum()) for part in arrived for tensor in part) == 3000


def test_what_was_received_often_takes_no_more_memory():
    # What lived when it was swept last, in another test, says how many may be known by now.
    before, most = len(tenon.inspect().blocks), _torch_storage.storages._sweep_at + 1
    queue, count = FORK.SimpleQueue(), 2 * most + 2000
    process = FORK.Process(target=send_numbered, args=(queue, count))
    process.start()
    for _ in range(count):
        queue.get()
    end(process)
    queue.close()
    gc.collect()
    assert len(tenon.inspect().blocks) <= before + 1
    assert len(_torch_storage.storages._entries) <= most


def test_an_unread_message_gives_its_memory_back():
    before = tenon.inspect().live_bytes
    queue = FORK.SimpleQueue()
    queue.put(torch.ones(1 << 18))
    assert tenon.inspect().live_bytes - before >= 1 << 20
    queue.close()
    del queue
    gc.collect()
    assert tenon.inspect().live_bytes - before < 1 << 20


def put_later(tensor, queue, go):
    assert go.wait(WITHIN_S)
    queue.put(tensor)


def test_a_child_forked_after_sharing_holds_the_memory_itself(strategy):
    queue, go = FORK.Queue(), FORK.Event()
    held = [torch.zeros(4).share_memory_()]
    process = FORK.Process(target=lambda: put_later(held[0], queue, go))
    process.start()
    held[0].fill_(2)
    held.clear()
    go.set()
    assert queue.get(timeout=WITHIN_S).tolist() == [2] * 4
    end(process)


def test_a_tensor_of_another_domain_is_copied(domain):
    queue, tensor = _core.Queue.create(domain), torch.arange(3.0).share_memory_()
    queue.put(tensor, WITHIN_S)
    copy = queue.get(WITHIN_S)
    copy[0] = 9
    assert copy.tolist() == [9, 1, 2] and tensor[0] == 0
    private = torch.zeros(3)
    queue.put(private, WITHIN_S)
    assert same_storage(queue.get(WITHIN_S), private) and tenon.torch.is_shared(private)
    address = private.data_ptr()
    assert private.share_memory_().data_ptr() == address
    del copy, private
    queue.close()


def test_put_waits_for_memory_of_the_quota_and_no_longer(strategy):
    domain = _core.Domain.create(quota_bytes=1 << 22)
    queue = _core.Queue.create(domain)
    with pytest.raises(MemoryError):
        queue.put(torch.zeros(1 << 22), 0.01)
    queue.put(torch.zeros(4), WITHIN_S)
    assert queue.get(WITHIN_S).sum() == 0
    queue.close()
    domain.close()


def test_a_message_with_a_wrong_storage_range_is_refused(domain):
    tensor = domain.empty((16,), "uint8")
    for offset, size_bytes in (-1, 4), (0, 17), (16, 1), (0, -1):
        with pytest.raises(ValueError, match="does not lie"):
            _torch_reduce._over_part(tensor, offset, size_bytes)
    once = domain.empty((4,), "uint8", write_once=True)
    storage = _torch_reduce._over_part(tensor, 4, 8)
    with pytest.raises(RuntimeError):
        _torch_reduce._rebuild_tensor(
            torch.Tensor, storage, torch.float32, 0, (3,), (1,), False, None
        )
    del storage, tensor, once


# ---- tenon's tensors and PyTorch's


@pytest.mark.parametrize(
    "dtype", ["float32", "bfloat16", "float8_e5m2", "complex64", "bool", "uint16"]
)
def test_a_tensor_is_the_same_memory_on_both_sides(dtype):
    need(dtype)
    theirs = torch.zeros(3, 4, dtype=getattr(torch, dtype))
    ours = tenon.torch.from_torch(theirs.t())
    assert (ours.shape, ours.dtype, ours.strides, ours.is_shared) == (
        (4, 3),
        dtype,
        (1, 4),
        True,
    )
    back = tenon.torch.to_torch(ours)
    assert same_storage(back, theirs) and back.stride() == (1, 4) and back.dtype == theirs.dtype
    view = tenon.torch.to_torch(ours[1:, 2])
    view.view(torch.uint8).fill_(1)
    assert theirs[2].view(torch.uint8).sum() == 3 * theirs.element_size() and same_storage(
        view, theirs
    )


def test_whether_it_requires_grad_goes_along():
    leaf = torch.ones(3, requires_grad=True)
    ours = tenon.torch.from_torch(leaf)
    assert ours.requires_grad and tenon.torch.to_torch(ours).requires_grad


def test_what_is_no_tensor_of_tenons_is_refused_by_name():
    for tensor, error, word in (
        (torch.ones(2, dtype=torch.complex64).conj(), ValueError, "resolve_conj"),
        (torch.eye(2).to_sparse(), NotImplementedError, "sparse"),
        (torch.ones(2, device="meta"), NotImplementedError, "meta"),
        (
            torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8),
            NotImplementedError,
            "QInt8",
        ),
    ):
        with pytest.raises(error, match=word):
            tenon.torch.from_torch(tensor)


def test_private_empty_and_foreign_tensors_are_converted(domain):
    private = _core.private((3,), "int32")
    private[...] = 4
    assert tenon.torch.to_torch(private).tolist() == [4, 4, 4]
    logical = _core.private((2, 2), "bool")
    logical[1, 0] = True
    flipped = tenon.torch.to_torch(logical.view((2, 2), "bool", (1, 2)))
    assert flipped.tolist() == [[False, True], [False, False]]
    assert tenon.torch.to_torch(_core.default_domain().empty((0, 2), "int8")).shape == (0, 2)
    assert tenon.torch.from_torch(torch.empty(0, 3)).shape == (0, 3)
    shared = torch.arange(3.0).share_memory_()
    copy = tenon.torch.from_torch(shared, domain)
    assert (
        copy.domain is domain
        and copy.tolist() == [0, 1, 2]
        and copy.address != shared.data_ptr()
    )
    del copy


@pytest.mark.parametrize("move", [lambda whole: whole, tenon.torch.share_memory])
@pytest.mark.parametrize(
    "cut", [lambda whole: whole[:0], lambda whole: whole[3:3], lambda whole: whole[:, :0]]
)
def test_an_empty_view_of_a_storage_with_bytes_is_converted(move, cut, domain):
    view = cut(move(torch.zeros(10, 4, dtype=torch.int16)))
    for result in tenon.torch.from_torch(view), tenon.torch.from_torch(view, domain):
        assert result.shape == tuple(view.shape) and result.dtype == "int16"
        assert tenon.torch.to_torch(result).shape == view.shape
    assert trip(view).shape == view.shape
    del result


def test_read_only_tensors_and_negative_strides_are_refused(domain):
    fixed = _core.from_buffer(bytes(8))
    with pytest.raises(ValueError, match="read-only.*copy"):
        tenon.torch.to_torch(fixed)
    assert tenon.torch.to_torch(fixed.copy()).tolist() == [0] * 8
    for dtype in ("float32", "bool"):
        for tensor in (_core.private((2, 3), dtype), domain.zeros((2, 3), dtype)):
            with pytest.raises(ValueError, match=r"strides \(3, -1\).*negative.*copy"):
                tenon.torch.to_torch(tensor[:, ::-1])
            assert tenon.torch.to_torch(tensor[:1][::-1]).tolist() == [[0, 0, 0]]
    del tensor


def test_any_number_of_tensors_in_a_message_arrives(queue):
    whole = torch.arange(100_000)
    queue.put([part.clone() for part in whole[:20_000].split(1)])
    assert torch.equal(torch.cat(queue.get()), whole[:20_000])
    tenon.torch.share_memory(whole)
    queue.put(whole.split(1))
    assert torch.equal(torch.cat(queue.get()), whole)


def test_threads_may_share_one_tensor_at_the_same_time(strategy):

    for _ in range(30):
        tensor = torch.arange(1000.0)
        barrier, errors = threading.Barrier(2), []

        def share(tensor=tensor, barrier=barrier, errors=errors):
            barrier.wait()
            try:
                tenon.torch.share_memory(tensor)
            except Exception as error:
                errors.append(error)

        threads = [threading.Thread(target=share) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors and tenon.torch.is_shared(tensor) and tensor[999] == 999
