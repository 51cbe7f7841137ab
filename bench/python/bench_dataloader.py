#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""dataloader, dataloader_uint8: PyTorch's DataLoader with our context and with its default one.

The loader is PyTorch's, and both sides run the same lines, apart from multiprocessing_context: 2
workers that persist, batches of 32 images of 224 x 224 x 3, made by default_collate. The images
are decoded already, as out of a cache: what a worker does is to read one, and to collate. The
process that trains reads each batch once, whole. An epoch is a round.

dataloader         float32: 19 MB a batch
dataloader_uint8   uint8: 4.8 MB
"""

import time

from common import measure, print_figure

ROUNDS = 11
WORKERS = 2
BATCH = 32
IMAGE = 3, 224, 224
IMAGES = 64
BATCHES = {"float32": 24, "uint8": 96}  # of a round


def epochs(context, dtype):
    """Images a second."""
    import torch

    class Decoded(torch.utils.data.Dataset):
        images = torch.arange(IMAGES).view(-1, 1, 1, 1).expand(-1, *IMAGE).to(getattr(torch, dtype))

        def __len__(self):
            return BATCHES[dtype] * BATCH

        def __getitem__(self, i):
            return self.images[i % IMAGES], i

    torch.set_num_threads(1)
    loader = torch.utils.data.DataLoader(
        Decoded(),
        BATCH,
        num_workers=WORKERS,
        persistent_workers=True,
        multiprocessing_context=context(),
    )
    while True:
        begun = time.monotonic()
        for images, numbers in loader:
            assert images.view(-1).view(torch.int64).sum() != 0  # reads all of it
            assert (images[:, 0, 0, 0] == numbers % IMAGES).all()
        yield len(loader.dataset) / (time.monotonic() - begun)


def tenons():
    import tenon.multiprocessing

    return tenon.multiprocessing.get_context("fork")


def main():
    for dtype, name in (("float32", "dataloader"), ("uint8", "dataloader_uint8")):
        figures = measure(
            ROUNDS,
            tenon=lambda: epochs(tenons, dtype),
            torch=lambda: epochs(lambda: None, dtype),
        )
        print_figure(name, "images/s", figures["tenon"], figures["torch"])


if __name__ == "__main__":
    main()
