"""What a probabilistic reduction loses along a chain of brokers, predicted.

Implements [RSPC06] proposition 4. A subscription s enters a chain at B1; each broker forwards it to the next but, with
probability `error`, wrongly withholds it. Each broker independently receives, with probability `rho`, a publication
that only s matches. It is found if s has reached the first broker that has one.

    s ──> B1 ──(1 - error)──> B2 ──(1 - error)──> B3 ...     B_i is reached with (1 - error)^(i - 1)

Differs: the paper calls Eq. (2) a probability of loss in passing; it is the probability of *finding*. What is lost is
what exists, 1 - (1 - rho)^n, less that. Eq. (2) takes the brokers' errors as independent. Ours draw from the
subscription's own seed: brokers with the same active entries err together or not at all, so a chain of them loses
what one hop loses (`shared=True`).
"""

from __future__ import annotations


def exists(rho: float, n: int) -> float:
    """The probability that some broker of `n` has a matching publication."""
    return 1.0 - (1.0 - rho) ** n


def found(rho: float, error: float, n: int, shared: bool = False) -> float:
    """The probability of finding it: Eq. (2), or the same with one error for the whole chain.

    >>> found(0.5, 0.0, 2), found(0.5, 1.0, 2)
    (0.75, 0.5)
    """
    if shared:
        return rho + (1.0 - error) * (exists(rho, n) - rho)
    return sum(rho * ((1.0 - rho) * (1.0 - error)) ** i for i in range(n))


def loss(rho: float, error: float, n: int, shared: bool = False) -> float:
    """The probability that a matching publication exists and is not found.

    >>> loss(0.5, 1.0, 2)
    0.25
    """
    return exists(rho, n) - found(rho, error, n, shared)
