# SPDX-License-Identifier: Apache-2.0
"""The program of docs/guide/channel.md."""

import asyncio
import os

import numpy as np
import tenon


def train(batch):
    assert batch["x"].shape == (32, 784)


def receive():
    # show: receive
    batches = tenon.Channel("batches", domain="lab")   # in another process
    for batch in batches:                       # from the next message on, until end()
        train(batch)                            # no copy: all subscribers have the same arrays
    # end
    batches.close()


def publish():
    # show: open
    batches = tenon.Channel("batches", domain="lab", capacity=8)
    # end
    child = os.fork()
    if child == 0:
        receive()
        os._exit(0)
    while batches.info().subscribers == 0:
        os.sched_yield()
    # show: publish
    for step in range(100):
        batches.publish({"step": step, "x": np.ones((32, 784))})   # copied once, into shared memory
    batches.end()
    # end
    assert os.waitpid(child, 0)[1] == 0
    batches.close()


def catch_up():
    # show: late
    settings = tenon.Channel("settings", domain="lab", history=1)
    settings.publish({"rate": 0.1})             # kept, although nobody has subscribed

    late = tenon.Channel("settings", domain="lab").subscribe("oldest")
    print(late.receive())                       # {'rate': 0.1}
    # end
    settings.publish({"rate": 0.2})
    assert late.receive(0) == {"rate": 0.2}
    late.close()
    settings.close()


def show(frame):
    pass


def fall_behind():
    # show: slow
    frames = tenon.Channel("frames", domain="lab", capacity=4, policy="disconnect")
    frames.subscribe()
    # end
    for number in range(5):
        frames.publish(number)
    shown = []
    # show: again
    try:
        show(frames.receive())
    except tenon.Stale:                         # more than 4 frames behind
        frames.subscribe()                      # from the next one on
    # end
        shown.append("again")
    assert shown == ["again"] and frames.info().disconnected == 1
    frames.close()


def follow():
    seen = []
    settings = tenon.Channel("settings", domain="lab")
    jobs = tenon.Queue("jobs", domain="lab")
    # show: async
    async def serve():
        while True:
            job = await jobs.get_async()        # the event loop does other work meanwhile
            if job is None:
                return
            seen.append(job)

    async def configure():
        async for setting in settings:          # until settings.end()
            seen.append(setting)
    # end

    async def main():
        both = asyncio.gather(serve(), configure())
        while settings.info().subscribers == 0:
            await asyncio.sleep(0)
        jobs.put("job")
        settings.publish({"rate": 0.3})
        jobs.put(None)
        settings.end()
        await both

    asyncio.run(main())
    assert "job" in seen and {"rate": 0.3} in seen
    jobs.close()
    settings.close()


if __name__ == "__main__":
    publish()
    catch_up()
    fall_behind()
    follow()
