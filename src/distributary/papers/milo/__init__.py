"""The figures of T. Milo, T. Zur and E. Verbin, "Boosting Topic-Based Publish-Subscribe Systems
with Dynamic Clustering" (2007): what topics save by sharing channels, and the cost of clustering.

*Paper* marks what its tables print; its figures are curves without numbers. *Independent* marks
what a second implementation found that was written only to check the paper.
"""

from distributary.papers.milo.curves import fig5, fig6, fig7, fig8
from distributary.papers.milo.fig9 import fig9
from distributary.papers.milo.overlay import overlay
from distributary.papers.milo.scales import scales
from distributary.papers.milo.tables import table2, table3

__all__ = ["fig5", "fig6", "fig7", "fig8", "fig9", "overlay", "scales", "table2", "table3"]
