# SPDX-License-Identifier: Apache-2.0
"""Models of transformers over the weights that a host has once, through public functions of transformers."""

import os

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # the models are made here, and nothing is fetched
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
transformers = pytest.importorskip("transformers", reason="no transformers: pip install transformers")
torch = pytest.importorskip("torch", reason="no PyTorch: dev/setup installs it")

import tenon  # noqa: E402
import tenon.multiprocessing as mp  # noqa: E402
import tenon.torch  # noqa: E402

WAIT_S = 120
TOKENS = list(range(10))


@pytest.fixture
def place():
    name = f"transformers-{os.urandom(4).hex()}"
    yield name
    tenon.unload("net", domain=name)


def config_of(kind, **more):
    return kind(
        vocab_size=100,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=64,
        **more,
    )


def answer(model):
    with torch.no_grad():
        return model.eval()(torch.tensor([TOKENS])).logits.float().numpy()


def copied(model, state):
    """The parameters of the model that do not lie in the memory of `state`."""
    shared = {tensor.untyped_storage().data_ptr() for tensor in state.values()}
    return {name for name, one in model.named_parameters() if one.untyped_storage().data_ptr() not in shared}


def by_from_pretrained(kind, config, state):
    return kind.from_pretrained(None, config=config, state_dict=state, dtype=config.dtype)


def by_load_state_dict(kind, config, state):
    model = kind(config).to(config.dtype)
    model.load_state_dict(state, assign=True)
    model.tie_weights()
    return model


def take(place, make, kind, config, results):
    """In a process to which the kernel refuses writes: make the model and use it."""
    state = tenon.torch.load_state_dict("net", domain=place)
    model = make(kind, config, dict(state))
    results.put((copied(model, state), answer(model)))


def use_in_a_child(place, make, kind, config):
    context = mp.get_context("spawn")
    results = context.Queue()
    child = context.Process(target=take, args=(place, make, kind, config, results))
    child.start()
    result = results.get(timeout=WAIT_S)
    child.join(WAIT_S)
    assert child.exitcode == 0
    return result


LLAMA = transformers.LlamaForCausalLM, transformers.LlamaConfig
BERT = transformers.BertForMaskedLM, transformers.BertConfig


@pytest.mark.parametrize("make", [by_from_pretrained, by_load_state_dict])
@pytest.mark.parametrize(
    "kinds, more, copies",
    [
        (LLAMA, {"num_key_value_heads": 2, "tie_word_embeddings": False}, set()),
        (LLAMA, {"tie_word_embeddings": True, "dtype": torch.bfloat16}, set()),
        (BERT, {}, {"cls.predictions.bias"}),  # transformers pads this bias when it ties it
    ],
    ids=["llama", "llama, tied, bfloat16", "bert"],
)
def test_a_model_of_transformers_takes_its_weights_without_a_copy(place, make, kinds, more, copies):
    kind, config_kind = kinds
    config = config_of(config_kind, **more)
    config.dtype = more.get("dtype", torch.float32)
    torch.manual_seed(1)
    weights = kind(config).to(config.dtype).state_dict()
    tenon.publish("net", weights, domain=place)
    found, logits = use_in_a_child(place, make, kind, config)
    assert found <= copies
    assert (logits == answer(make(kind, config, {name: one.clone() for name, one in weights.items()}))).all()
