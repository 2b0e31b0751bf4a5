"""The figures of Y. Tock, N. Naaman, A. Harpaz and G. Gershinsky, "Hierarchical Clustering of
Message Flows in a Multicast Data Dissemination System" (2005): a trading floor's symbols in
sessions, and sessions in multicast groups.

*Paper* marks what is printed there, *independent* what a second implementation found that was
written only to check the paper.
"""

from distributary.papers.tock.fig4 import fig4
from distributary.papers.tock.fig5 import fig5
from distributary.papers.tock.fig6 import fig6
from distributary.papers.tock.fig7 import fig7
from distributary.papers.tock.outliers import outliers
from distributary.papers.tock.unicast_flooding import unicast_flooding

__all__ = ["fig4", "fig5", "fig6", "fig7", "outliers", "unicast_flooding"]
