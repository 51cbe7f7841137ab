# SPDX-License-Identifier: Apache-2.0
"""The program of the section on weights in docs/guide/store.md that needs transformers."""

import tenon
import tenon.torch
import torch
from transformers import LlamaConfig, LlamaForCausalLM

config = LlamaConfig(
    vocab_size=100, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4
)


def use():
    # show: use
    weights = tenon.torch.load_state_dict("llm")    # of `tenon load llm model.safetensors`
    model = LlamaForCausalLM.from_pretrained(None, config=config, state_dict=weights, dtype=torch.float32)
    # end
    memory = {tensor.untyped_storage().data_ptr() for tensor in weights.values()}
    assert all(one.untyped_storage().data_ptr() in memory for one in model.parameters())
    assert model(torch.arange(5)[None]).logits.shape == (1, 5, 100)


if __name__ == "__main__":
    tenon.publish("llm", LlamaForCausalLM(config).state_dict())
    use()
    tenon.unload("llm")
