"""Faults on real services: the parts of `python -m benchmarks.campaign`.

    world.py      Kafka, Redis and one deployment after another, from outside: processes, files, commands
    nodes.py      the same with a Kafka of three nodes
    load.py       publishers, subscribers that change, leases, advertisements; remembers what it sent, and when
    judge.py      what must have come and what may have come, by an oracle that shares nothing with the router
    scene.py      what a fault may touch: all of the above, and how to wait until routing went on
    kind.py       what a fault is: prepare, strike, heal, and what it expects; all kinds by name
    processes.py points.py outages.py checkpoints.py drivers.py             the kinds: what is done to us,
    inputs.py one_by_one.py inboxes.py destinations.py                      and what is sent to us
    schedule.py   which fault comes when, from a seed
    figures.py    the progress line, the table and the picture

Only the public contract is used: topics, commands, hilcast.toml, `hilcast.wait`; else only what starts local services.
"""
