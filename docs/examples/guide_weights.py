# SPDX-License-Identifier: Apache-2.0
"""The program of the section on weights in docs/guide/store.md."""

import os

import numpy as np
import tenon
import tenon.torch
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(8, 16), nn.Linear(16, 2)

    def forward(self, x):
        return self.two(torch.relu(self.one(x)))


def publish():
    # show: publish
    weights = {"w": np.ones((512, 512)), "b": np.zeros(512)}
    tenon.publish("net", weights, metadata={"made by": "hand"})   # copied once, into shared memory
    # end


def use():
    # show: use
    net = tenon.load("net")                         # in any process: no copy, read-only arrays
    y = net["w"] @ np.ones(512) + net["b"]
    # end
    assert y.tolist() == [512] * 512 and net.metadata == {"made by": "hand"}
    assert not net["w"].flags.writeable


def use_file():
    torch.save(Net().state_dict(), "classifier.pt")
    # show: torch
    tenon.load_file("classifier", "classifier.pt")  # reads the file if no process has done so before

    model = Net()
    model.load_state_dict(tenon.torch.load_state_dict("classifier"), assign=True)   # no copy
    model.eval()
    # end
    with torch.no_grad():
        assert model(torch.ones(3, 8)).shape == (3, 2)


def remove():
    # show: unload
    tenon.unload("net")                             # who has got the arrays keeps them
    tenon.unload("classifier")
    # end


if __name__ == "__main__":
    publish()
    child = os.fork()
    if child == 0:
        use()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    use_file()
    remove()
