# SPDX-License-Identifier: Apache-2.0
"""The devices that have memory for tensors."""

from typing import List, NamedTuple

from . import _core


class Device(NamedTuple):
    """A device, as this process numbers devices."""

    name: str  # as in "cuda:0" and "rocm:0"
    model: str
    uuid: str  # names the device in every process, as in "GPU-5fd4f087-86f3-7a43-b711-4771313afc50"
    memory_bytes: int
    driver_version: int  # 13000 is CUDA 13.0, 70100000 is ROCm 7.1
    shares: bool  # whether processes can share its memory
    pci: str  # its address on the PCI bus, as in "0000:3b:00.0"; "" if it is not known
    numa_node: int  # the node of the host's memory that is nearest to it; -1 if it is not known


def devices() -> List[Device]:
    """The devices that this process sees, without the CPU: those of CUDA, then those of ROCm.

    The list is empty if there is no driver or no device: the command `tenon doctor` says why.

    Returns
    -------
    list of tenon.Device
    """
    return [Device(*device) for device in _core.devices()]
