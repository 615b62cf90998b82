"""The eras of the subnet: what a published trace could show about who acted, and how its reasoning was scored.

Numbers of two eras are not one series: a share that jumps at a border says more about the format than about agents.
The list is the one the filter counts by (``by_era`` of its summary), so that a day has the same era everywhere.
"""

from __future__ import annotations

from trajectory_platform.curation.corpus import ERAS as ERAS
from trajectory_platform.curation.corpus import Era as Era
from trajectory_platform.curation.corpus import era_of as era_of
