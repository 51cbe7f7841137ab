# SPDX-License-Identifier: Apache-2.0
"""What PyTorch tests of its own processes, by every strategy and every start method.

docs/checklist.md says which of these tests stands for which of theirs.
"""

import itertools
import os
import pathlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("numpy")
torch = pytest.importorskip("torch")
# PyTorch warns of what of it is new, old or unchecked, wherever it is used.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

import peers as children  # noqa: E402
import tenon  # noqa: E402
import tenon.multiprocessing as mp  # noqa: E402
import tenon.torch  # noqa: E402
from peers import METHODS, PRELOADED, WITHIN_S  # noqa: E402
from tenon import _core  # noqa: E402
from test_torch_sharing import facts, kinds  # noqa: E402

mp.set_forkserver_preload([*PRELOADED, "torch", "tenon.torch"])


def make_given():
    """What a child is given as the argument of its process."""
    tensors = {}
    for strategy in _core.strategies():
        shared = tenon.zeros((5,), "float32", strategy=strategy)
        tensors[strategy] = tenon.torch.to_torch(shared)
    parameter = torch.nn.Parameter(torch.arange(3), requires_grad=False)
    return {"tensors": tensors, "parameter": parameter}


def add_to_given(number):
    torch.set_num_threads(1)  # a forked child has none of the threads that its parent counts
    for tensor in children.given["tensors"].values():
        tensor.add_(number)


def begin(method):
    peer = children.Peer(method, make_given())
    peer.ask(add_to_given, 3)
    return peer


@pytest.fixture(scope="module")
def peers():
    tenon.torch.install()
    made = children.Peers(begin)
    yield made
    made.close()


@pytest.fixture(params=METHODS)
def peer(request, peers):
    return peers[request.param]


@pytest.fixture(scope="module")
def pools():
    tenon.torch.install()
    made = children.Peers(lambda method: mp.get_context(method).Pool(2))
    yield made
    for pool in made.values():
        pool.close()
        pool.join()


@pytest.fixture(params=METHODS)
def pool(request, pools):
    return pools[request.param]


def base(tensor):
    """Where its storage begins in this process."""
    return tensor.data_ptr() - tensor.storage_offset() * tensor.element_size()


def size_bytes(tensor):
    """Of all of its storage."""
    return tensor.storage().nbytes()


# ---- one memory


def fill(tensor, column):
    tensor.fill_(4)
    column.fill_(7)
    return tensor, column


def make_and_yield_twice():
    tensor = torch.arange(4.0)
    yield tensor
    yield tensor


def test_a_child_fills_a_tensor_and_its_column_and_sends_one_twice(peer, strategy):
    for _ in range(30):
        tensor = torch.zeros(5, 5)
        again, column = peer.ask(fill, tensor, tensor[:, 1])
        assert base(again) == base(column) == base(tensor)
        assert tensor.eq(4).sum() == 20 and tensor[:, 1].eq(7).all()
    peer.begin(make_and_yield_twice)
    one, other = peer.answer(), peer.answer()
    one[0] = 9
    assert one.data_ptr() == other.data_ptr() and other.tolist() == [9, 1, 2, 3]


def keep_base(storage):
    children.kept["storage"] = storage
    children.kept["base"] = storage.data_ptr()


def is_at_kept_base(tensor):
    return base(tensor) == children.kept["base"]


def test_views_sent_one_by_one_share_one_storage_in_a_child(peer, strategy):
    tensor = torch.zeros(5, 5)
    peer.ask(keep_base, tensor.storage())
    assert all([peer.ask(is_at_kept_base, view) for view in (tensor, tensor[2], tensor[:, 3])])
    assert not peer.ask(is_at_kept_base, torch.zeros(5, 5))
    peer.ask(children.forget)


def change_and_make(tensor):
    tensor.add_(1)
    return tensor.new_full((3,), float(tensor[0])), tensor.is_shared()


def test_workers_of_a_pool_change_their_arguments_and_return_tensors(pool, strategy):
    tensors = [torch.full((3,), float(i)) for i in range(4)]
    results = pool.map_async(change_and_make, tensors).get(WITHIN_S)
    assert [tensor.tolist() for tensor in tensors] == [[i + 1.0] * 3 for i in range(4)]
    assert [made.tolist() for made, _ in results] == [[i + 1.0] * 3 for i in range(4)]
    assert all(was_shared for _, was_shared in results)


def storage_files():
    folder = pathlib.Path(os.environ["TENON_SHM_DIR"])
    return {path for path in folder.rglob("*") if path.is_file()}


def test_only_file_system_makes_a_file_and_its_last_holder_ends_it(peer, strategy):
    before = storage_files()
    tensor = torch.ones(1000)
    peer.ask(children.keep, "tensor", tensor)
    made = storage_files() - before
    assert len(made) == (strategy == "file_system")
    del tensor
    assert made <= storage_files()
    peer.ask(children.forget)
    assert not made & storage_files()


def test_a_process_of_a_class_inherits_shared_tensors(peer, strategy):
    tensor = peer.to_give["tensors"][strategy]
    assert tensor.tolist() == [3] * 5
    assert tenon.torch.from_torch(tensor).strategy == strategy and tensor.is_shared()


def describe_parameter():
    parameter = children.given["parameter"]
    parameter.data.add_(0)
    return type(parameter).__name__, parameter.requires_grad, str(parameter.dtype), parameter.tolist()


def test_an_integer_parameter_is_an_argument_of_a_process(peer):
    assert peer.ask(describe_parameter) == ("Parameter", False, "torch.int64", [0, 1, 2])


def make_and_delete(count):
    for i in range(count):
        tensor = torch.full((1000,), float(i))
        yield tensor
        del tensor


def test_what_a_child_deletes_after_each_put_is_whole_on_arrival(peer, strategy):
    peer.begin(make_and_delete, 5)
    held = [peer.answer() for _ in range(5)]
    assert [tensor.unique().tolist() for tensor in held] == [[float(i)] for i in range(5)]


def drop(queue, count):
    for _ in range(count):
        queue.get(timeout=WITHIN_S)


def test_a_queue_of_one_carries_state_dicts_that_are_dropped(peer, strategy):
    queue, module = peer.context.Queue(1), torch.nn.Linear(8, 8)
    peer.begin(drop, queue, 40)
    for _ in range(40):
        queue.put(module.state_dict(), timeout=WITHIN_S)
    peer.answer()
    queue.close()


def pass_on(there, back, count):
    for _ in range(count):
        back.put(there.get(timeout=WITHIN_S), timeout=WITHIN_S)


def test_many_tensors_go_through_a_process_of_each_start_method(peers, strategy):
    count = 1000 if strategy == "arena" else 100
    queues = [mp.Queue(20) for _ in range(len(METHODS) + 1)]
    for method, there, back in zip(METHODS, queues, queues[1:]):
        peers[method].begin(pass_on, there, back, count)
    total = 0
    for i in range(count):
        queues[0].put(torch.full((5,), float(i)), timeout=WITHIN_S)
        if i >= 20:
            total += float(queues[-1].get(timeout=WITHIN_S)[4])
    total += sum(float(queues[-1].get(timeout=WITHIN_S)[4]) for _ in range(20))
    for method in METHODS:
        peers[method].answer()
    assert total == count * (count - 1) / 2


# ---- kinds of tensors


def describe(value):
    if isinstance(value, dict):
        return {name: facts(tensor) for name, tensor in value.items()}
    return [facts(tensor) for tensor in value]


def describe_and_return(value):
    return describe(value), value


def test_tensors_of_every_kind_are_the_same_there_and_back(peer, strategy):
    sent = kinds()
    there, back = peer.ask(describe_and_return, sent)
    assert there == describe(sent) == describe(back)


def make_views():
    numbers = torch.randn(2, 3, dtype=torch.complex64)
    scale = torch.quantize_per_tensor(torch.arange(6.0).view(2, 3), 0.5, 1, torch.qint8)
    return [numbers.conj(), numbers.conj().imag, numbers.t().conj()[1:], scale, scale.t()[1:]]


def change_first(views):
    for view in views:
        if view.is_quantized:
            view.dequantize()
        else:
            view.mul_(2)
    return describe(views)


def test_conjugate_negative_and_quantized_views_are_the_same_memory(peer, strategy):
    views = make_views()
    peer.ask(change_first, views[:1])
    assert peer.ask(describe_and_return, views)[0] == describe(views)
    assert base(peer.ask(children.give_back, views)[0]) == base(views[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_empty_tensors_arrive_and_may_be_shared(peer, strategy, dtype):
    empty = torch.tensor([], dtype=dtype)
    assert empty.share_memory_() is empty and empty.is_shared()
    for sent in (empty, torch.empty(3, 0, dtype=dtype), torch.ones(4, dtype=dtype)[4:]):
        arrived = peer.ask(children.give_back, sent)
        assert (arrived.dtype, arrived.shape) == (dtype, sent.shape)


def test_meta_tensors_arrive_without_data(peer):
    sent = [
        torch.empty(0, device="meta"),
        torch.ones(1, device="meta"),
        torch.ones(5, 5, device="meta").t(),
    ]
    for tensor in sent:
        arrived = peer.ask(children.give_back, tensor)
        assert arrived.is_meta and arrived.dtype == tensor.dtype
        assert (arrived.shape, arrived.stride()) == (tensor.shape, tensor.stride())


def test_a_view_of_a_huge_storage_takes_that_along_once(peer, strategy):
    huge = torch.zeros(1 << 22)
    before = tenon.inspect().live_bytes
    arrived = [peer.ask(children.give_back, huge[-i:]) for i in (1, 2, 3)]
    assert {base(view) for view in arrived} == {base(huge)}
    assert size_bytes(arrived[0]) == size_bytes(huge) == 1 << 24
    assert 1 << 24 <= tenon.inspect().live_bytes - before < 1 << 25
    copy = peer.ask(children.give_back, huge[-1:].clone())
    assert size_bytes(copy) == 4


# ---- autograd


def learn(tensor):
    children.kept["tensor"] = tensor
    tensor.data.add_(1)
    hooks = tensor._backward_hooks
    return type(tensor).__name__, tensor.requires_grad, tensor.is_leaf, tensor.grad is None, not hooks


def read_kept():
    return children.kept["tensor"].tolist()


def test_later_writes_are_seen_both_ways_and_grad_and_hooks_stay(peer, strategy):
    plain, leaf = torch.zeros(5), torch.zeros(5, requires_grad=True)
    parameter = torch.nn.Parameter(torch.zeros(5))
    for tensor in (leaf, parameter):
        tensor.grad = torch.ones(5)
        tensor.register_hook(lambda grad: grad)
    for sent in (plain, leaf, parameter):
        expected = type(sent).__name__, sent.requires_grad, True, True, True
        assert peer.ask(learn, sent) == expected
        assert sent.tolist() == [1] * 5
        sent.data.add_(1)
        assert peer.ask(read_kept) == [2] * 5
    peer.ask(children.forget)
    assert leaf.grad.tolist() == parameter.grad.tolist() == [1] * 5


def try_to_send_a_product():
    leaf = torch.ones(3, requires_grad=True)
    queue = mp.SimpleQueue()
    try:
        queue.put(leaf * 2)
    except RuntimeError as error:
        queue.put((leaf * 2).detach())
        return str(error), queue.get().tolist()


def test_what_is_no_leaf_is_refused_in_whichever_process_sends_it(peer):
    for error, after in (peer.ask(try_to_send_a_product), try_to_send_a_product()):
        assert "not a leaf" in error and "detach" in error and after == [2, 2, 2]


def backward(_):
    leaf = torch.ones(3, requires_grad=True)
    (leaf * 2).sum().backward()
    return leaf.grad


def test_workers_of_a_pool_compute_gradients(pool, strategy):
    grads = pool.map_async(backward, range(3)).get(WITHIN_S)
    assert [grad.tolist() for grad in grads] == [[2.0] * 3] * 3


# ---- what is shared


def is_shared(tensor):
    return tensor.is_shared() and tensor[1:].is_shared() and tensor.share_memory_() is tensor


def test_a_tensor_is_shared_for_all_once_it_was_moved(peer, strategy):
    tensor = torch.ones(4)
    view = tensor[1:]
    assert not tensor.is_shared() and not view.is_shared()
    tensor.share_memory_()
    assert tensor.is_shared() and view.is_shared()
    assert tenon.torch.from_torch(tensor).strategy == strategy
    assert peer.ask(is_shared, tensor) and not torch.ones(4).is_shared()
    mine = peer.ask(torch.ones, 4)
    assert mine.is_shared() and tenon.torch.from_torch(mine).strategy == strategy


def name_thread(name):
    before = mp.get_thread_name()
    mp.set_thread_name(name)
    now = mp.get_thread_name()
    mp.set_thread_name(before)
    return now


def test_a_thread_of_a_child_has_the_name_that_it_was_given(peer):
    assert peer.ask(name_thread, "a name of its own") == "a name of its o"


# ---- what they do not test


def pass_to(queue, name):
    queue.put(children.kept.pop(name))


def keep_from(queue, name):
    children.kept[name] = queue.get()
    children.kept[name].add_(1)


@pytest.mark.parametrize("chain", list(itertools.permutations(METHODS)), ids="-".join)
def test_a_tensor_is_passed_on_by_processes_that_release_it(peers, strategy, chain):
    tensor, queue = torch.zeros(3), mp.SimpleQueue()
    queue.put(tensor)
    address = base(tensor)
    del tensor
    for method in chain:
        peers[method].ask(keep_from, queue, "passed on")
        peers[method].ask(pass_to, queue, "passed on")
    last = queue.get()
    assert last.tolist() == [3] * 3 and base(last) == address
    queue.close()


def storages():
    return {block["block"] for block in tenon.inspect().blocks if block["kind"] == "tensor"}


def test_one_tensor_that_is_sent_often_is_one_block(peer, strategy):
    tensor = torch.zeros(100).share_memory_()
    before = storages()
    queue = peer.context.Queue()
    for _ in range(500):
        queue.put(tensor)
    assert storages() == before
    peer.ask(drop, queue, 250)
    arrived = [queue.get(timeout=WITHIN_S) for _ in range(250)]
    assert {base(one) for one in arrived} == {base(tensor)}
    assert tenon.torch.from_torch(tensor).strategy == strategy
    queue.close()


def large_blocks():
    return {block["block"] for block in tenon.inspect().blocks if block["bytes"] >= 1 << 20}


def test_an_unread_message_gives_the_memory_back(peer, strategy):
    before = large_blocks()
    queue = peer.context.SimpleQueue()
    peer.ask(put_ones, queue, 1 << 18)
    assert len(large_blocks() - before) == 1
    queue.close()
    del queue
    assert not large_blocks() - before


def put_ones(queue, count):
    queue.put(torch.ones(count))
    queue.close()


def test_a_message_that_is_loaded_twice_is_one_memory(strategy):
    queue = _core.Queue.create(tenon.domain(), policy=2)
    queue.put([torch.zeros(4)])
    message = queue.pop()
    one, other = message.load()[0], message.load()[0]
    message.give_back()
    again = queue.pop()
    assert again.attempt == 1
    third = again.load()[0]
    again.ack()
    one[2] = 5
    assert other.tolist() == third.tolist() == [0, 0, 5, 0]
    assert base(one) == base(other) == base(third)
    queue.close()


# ---- round trips

DTYPES = [
    getattr(torch, name)
    for name in (
        "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64 complex128 "
        "float8_e4m3fn float8_e5m2 uint16 uint32 uint64"
    ).split()
    if hasattr(torch, name)
]


@st.composite
def views_of_one_storage(draw, most=3):
    """Views of any shape, strides and offset, overlapping and expanded ones too."""
    dtype, count = draw(st.sampled_from(DTYPES)), draw(st.integers(1, 40))
    itemsize = torch.empty(0, dtype=dtype).element_size()
    numbers = draw(st.binary(min_size=count * itemsize, max_size=count * itemsize))
    if dtype is torch.bool:
        numbers = bytes(number & 1 for number in numbers)
    flat = torch.tensor(list(numbers), dtype=torch.uint8).view(dtype)
    views = [flat]
    for _ in range(draw(st.integers(0, most))):
        offset = draw(st.integers(0, count - 1))
        left, shape, strides = count - 1 - offset, [], []
        for _ in range(draw(st.integers(0, 4))):
            stride = draw(st.integers(0, max(left, 1)))
            shape.append(draw(st.integers(0, 1 + (min(left // stride, 4) if stride else 4))))
            strides.append(stride)
            left -= stride * max(shape[-1] - 1, 0)
        views.append(flat.as_strided(shape, strides, offset))
    return draw(st.permutations(views))


OBJECTS = st.recursive(
    st.one_of(st.none(), st.integers(), st.text(max_size=20), st.binary(max_size=300), views_of_one_storage()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(st.text(max_size=3), inner, max_size=3),
    ),
    max_leaves=6,
)


def bytes_of(tensor):
    flat = torch.empty(tensor.numel(), dtype=tensor.dtype).copy_(tensor.reshape(-1))
    return tuple(flat.view(torch.uint8).tolist())


def as_known(value, bases):
    """All that there is to know of an object, tensors as numbers of their storages too."""
    if isinstance(value, torch.Tensor):
        number = bases.setdefault(base(value), len(bases)) if value.numel() else None
        place = tuple(value.shape), value.stride(), value.storage_offset()
        return "tensor", str(value.dtype), *place, size_bytes(value), number, bytes_of(value)
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [as_known(inner, bases) for inner in value]
    if isinstance(value, dict):
        return [(key, as_known(inner, bases)) for key, inner in value.items()]
    return value


def know_and_return(value):
    return as_known(value, {}), value


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(value=OBJECTS)
def test_nested_objects_with_strided_views_survive_a_round_trip(peer, strategy, value):
    there, back = peer.ask(know_and_return, value)
    addresses, after = {}, {}
    known = as_known(value, addresses)
    assert there == known == as_known(back, after)
    assert list(after) == list(addresses)


# ---- the last of it: the children end


@pytest.mark.parametrize("method", METHODS)
def test_what_was_put_is_whole_though_its_producer_has_ended(peers, method):
    peer = peers[method]
    for strategy in _core.strategies():
        _core.set_strategy(strategy)
        peer.begin(torch.full, (1000,), 6.0)
    _core.set_strategy("arena")
    peer.end()
    for strategy in _core.strategies():
        arrived = peer.answer()
        assert arrived.eq(6).all() and tenon.torch.from_torch(arrived).strategy == strategy
