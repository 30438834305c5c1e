"""`hilcast ui`: the router in the browser, from what Kafka and Redis hold.

    Redis, Kafka ──> live_source.py ──> poller.py ──> views.py ──> server.py ──> one stream per page
                     (bounded reads)    (one, shared)  (pure)      (doorkeeper.py lets in)
    asked for by a click:  space (plane.py), filter, event, explain, verify (asking.py); writing (acting.py)

Nothing here decides anything: what is shown is what `inspect`, `status`, `explain` and `cost` say.
"""
