# SPDX-License-Identifier: Apache-2.0
"""The program of docs/guide/store.md."""

import os

import numpy as np
import tenon


def publish():
    # show: publish
    models = tenon.Store("models", domain="shop")
    models["net"] = {"w": np.ones((512, 512)), "b": np.zeros(512)}   # copied once, into shared memory
    # end
    return models


def use():
    # show: use
    models = tenon.Store("models", domain="shop")   # in another process
    net = models["net"]                             # no copy: all processes have the same arrays
    y = net["w"] @ np.ones(512) + net["b"]
    # end
    assert y.tolist() == [512] * 512
    models.close()


def load_image(path):
    return np.full((4, 4), len(path), np.uint8)


def cache():
    path = "17.png"
    # show: cache
    images = tenon.Store("images", domain="shop", budget_bytes=64 << 20, evict=True)
    image = images.get_or_make(f"image/{path}", lambda: load_image(path))
    # end
    assert image.sum() == 16 * 6 and images.info().puts == 1
    images.close()


def replace(models):
    # show: replace
    while True:
        net, version = models.get_with_version("net")
        try:
            models.put("net", {**net, "b": net["b"] + 1}, if_version=version)
            break
        except tenon.Stale:
            pass                                    # another process has replaced it meanwhile
    # end
    assert models["net"]["b"][0] == 1


def guard(models):
    # show: guard
    weights = tenon.empty(512, strategy="file_descriptor", write_once=True, domain=models.domain)
    np.asarray(weights)[:] = 1
    models["weights"] = weights                     # no other process can write to them
    # end
    assert models["weights"].tolist() == [1] * 512


def follow(models, count):
    seen = []
    # show: watch
    for version in models.watch("net"):
        net = models.get("net")                     # None: the key was deleted
        seen.append(version)
        if len(seen) == count:
            break
    # end
    return seen


def follow_in_child(models):
    changes = os.pipe()
    child = os.fork()
    if child == 0:
        versions = models.watch("net")
        os.write(changes[1], b"!")
        models.watch = lambda prefix: versions      # it counts from before the put
        os._exit(0 if follow(models, 1) else 1)
    os.read(changes[0], 1)
    models["net"] = {"b": np.zeros(3)}
    assert os.waitpid(child, 0)[1] == 0


def keep(models):
    # show: keep
    models.put("session/7", {"user": 7}, lifetime=3600)   # removed after an hour
    models.pin("net")                               # not evicted, however long nobody asks for it
    del models["weights"]                           # who has got the value keeps it
    print(models.keys("session/"), models.info())
    # end
    assert models.keys("session/") == ["session/7"]


if __name__ == "__main__":
    models = publish()
    use()
    cache()
    replace(models)
    guard(models)
    follow_in_child(models)
    keep(models)
    models.close()
