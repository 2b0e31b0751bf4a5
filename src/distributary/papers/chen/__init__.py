"""The figures of M. Chen, S. Hu, V. Muthusamy, H.-A. Jacobsen and Z. Liu, "Congestion Avoidance
with Selective Filter Aggregation in Content-Based Routing Networks" (2011): the burst when a
subscription ends that had hidden many others, and how to avoid it.

*Paper* marks what its text says; its charts are not in it. *Independent* marks what a second
implementation found that was written only to check the paper.
"""

from distributary.papers.chen.fig1 import fig1
from distributary.papers.chen.fig7 import fig7
from distributary.papers.chen.fig10 import fig10
from distributary.papers.chen.fig12 import fig12
from distributary.papers.chen.other_readings import readings
from distributary.papers.chen.sweeps import fig8, fig9

__all__ = ["fig1", "fig7", "fig8", "fig9", "fig10", "fig12", "readings"]
