"""Web pages over a running control plane: what it does now, and why; approve and roll back."""

from distributary.extras import require

require("dashboard")  # before the imports that need it

from distributary.dashboard.app import make_app
from distributary.dashboard.looks import BrokerLook, TopicLook
from distributary.dashboard.serving import run_dashboard
from distributary.dashboard.settings import DashboardSettings
from distributary.dashboard.sources import ControlSource

__all__ = [
    "BrokerLook",
    "ControlSource",
    "DashboardSettings",
    "TopicLook",
    "make_app",
    "run_dashboard",
]
