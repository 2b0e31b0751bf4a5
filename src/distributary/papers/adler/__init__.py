"""The figures of M. Adler, Z. Ge, J. Kurose, D. Towsley and S. Zabele, "Channelization Problem in
Large Scale Data Dissemination" (2001): merging flows or users, against random and optimal plans.

*Paper* marks what is printed there, *independent* what a second implementation found that was
written only to check the paper.
"""

from distributary.papers.adler.asymmetric import asymmetric
from distributary.papers.adler.fig2 import fig2
from distributary.papers.adler.fig3 import fig3
from distributary.papers.adler.fig4 import fig4
from distributary.papers.adler.weights import weights

__all__ = ["asymmetric", "fig2", "fig3", "fig4", "weights"]
