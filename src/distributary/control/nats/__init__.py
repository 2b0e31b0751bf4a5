"""The control plane on NATS: its service, its members and its operators."""

from distributary.control.nats.client import ControlClient
from distributary.control.nats.members import Control
from distributary.control.nats.service import ControlService
from distributary.control.nats.stream_process import SparkChoice

__all__ = ["Control", "ControlClient", "ControlService", "SparkChoice"]
