# SPDX-License-Identifier: Apache-2.0
"""The program of docs/guide/python-torch.md and docs/guide/python-dataloader.md."""

import torch
from torch import nn

# show: change
import tenon.torch                      # after: import torch
import tenon.multiprocessing as mp      # was: import torch.multiprocessing as mp

tenon.torch.install()
# end


class Net(nn.Linear):
    def __init__(self):
        super().__init__(4, 1)


def train(rank, model):
    with torch.no_grad():
        model.weight[0, rank] = rank + 1


def strategies():
    # show: strategies
    mp.get_all_sharing_strategies()         # {'arena', 'file_descriptor', 'file_system'}
    mp.set_sharing_strategy("arena")        # the default
    # end
    assert mp.get_all_sharing_strategies() == {"arena", "file_descriptor", "file_system"}


def hogwild():
    # show: hogwild
    model = Net()
    tenon.torch.share_memory(model)         # or model.share_memory(), after install()
    mp.spawn(train, args=(model,), nprocs=4)
    # end
    assert model.weight.tolist() == [[1, 2, 3, 4]]


def load():
    dataset = torch.utils.data.TensorDataset(torch.arange(256.0))
    # show: loader
    loader = torch.utils.data.DataLoader(
        dataset,
        batch_size=32,
        num_workers=2,
        multiprocessing_context=mp.get_context("fork"),    # or "spawn", "forkserver"
        persistent_workers=True,
    )
    total = 0
    for (batch,) in loader:
        total += batch.sum()
    # end
    assert total == 255 * 128


if __name__ == "__main__":
    # show: loader_import
    import torch.utils.data
    # end

    strategies()
    hogwild()
    load()
