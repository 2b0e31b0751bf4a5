"""The figures of G. Banavar, T. Chandra, B. Mukherjee, J. Nagarajarao, R. Strom and D. Sturman, "An
Efficient Multicast Protocol for Content-Based Publish-Subscribe Systems" (1999), as given in the
slides of J. Nogueira (2006): how long link matching takes, and what it saves a network of brokers.

*Paper* marks what the slides' text says; their charts are not in it. *Independent* marks what a
second implementation found that was written only to check the paper.
"""

from distributary.papers.banavar.batches import batches
from distributary.papers.banavar.drops import drops
from distributary.papers.banavar.lateral import lateral
from distributary.papers.banavar.load import load
from distributary.papers.banavar.queues import queues
from distributary.papers.banavar.steps import steps

__all__ = ["batches", "drops", "lateral", "load", "queues", "steps"]
