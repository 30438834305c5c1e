"""`make demo`: a stock exchange of seven cities on real Kafka, Redis and Spark, checked delivery by delivery.

Start at `scenes.py`: the whole evening in one function.
"""
