"""The control plane: live interest and rates in, plans out; versions, approval and rollback.

`control.nats` has the service, its members (`Control`) and its operators (`ControlClient`).
"""

from distributary.extras import require

require("live")  # before the imports that need it

from distributary.control.settings import ControlSettings, NetworkSettings
from distributary.control.status import ControlStatus

__all__ = ["ControlSettings", "ControlStatus", "NetworkSettings"]
