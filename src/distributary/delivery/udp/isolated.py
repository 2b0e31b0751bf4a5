"""Calibrates in a network namespace of its own, or without multicast where there is none.

`python -m distributary.delivery.udp.isolated PARAMS` is what runs in the namespace.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import asdict, replace
from typing import Any

from distributary.delivery.addresses import GroupAddresses
from distributary.delivery.udp.calibration import (
    Calibration,
    CalibrationParams,
    FittedLine,
    FittedPrice,
    Measurement,
    calibrate,
)
from distributary.delivery.udp.calibration_file import calibration_document
from distributary.delivery.udp.network import NetworkOptions

__all__ = ["calibrate_in_isolation"]

_NAMESPACE = (
    "unshare", "-rn", "sh", "-c",
    'ip link set lo up multicast on && ip route add 224.0.0.0/4 dev lo && exec "$@"', "sh",
)  # fmt: skip
_NETWORK = NetworkOptions(GroupAddresses("239.192.77.0", 7_704), interface="lo", ttl=0)


def calibrate_in_isolation(params: CalibrationParams) -> Calibration:
    """Calibrate by multicast in a namespace; `params.unicast` is set if none could be made.

    Then packets go to the receiver's own address on the loopback instead.
    """
    if not _can_isolate():
        return calibrate(_NETWORK, replace(params, unicast=True))
    command = [*_NAMESPACE, sys.executable, "-m", __name__, json.dumps(asdict(params))]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return _calibration_from(json.loads(done.stdout))


def _can_isolate() -> bool:
    if sys.platform != "linux" or not shutil.which("unshare") or not shutil.which("ip"):
        return False
    tried = subprocess.run([*_NAMESPACE, "true"], capture_output=True, check=False)
    return tried.returncode == 0


def _calibration_from(document: dict[str, Any]) -> Calibration:
    return Calibration(
        _params_from(document["params"]),
        tuple(Measurement(**point) for point in document["points"]),
        tuple(FittedPrice(**price) for price in document["prices"]),
        FittedLine(document["alpha0"], document["alpha1"], document["alpha_r2"]),
        FittedLine(document["beta0"], document["beta1"], document["beta_r2"]),
    )


def _params_from(document: dict[str, Any]) -> CalibrationParams:
    return CalibrationParams(**{**document, "factors": tuple(document["factors"])})


if __name__ == "__main__":
    found = calibrate(_NETWORK, _params_from(json.loads(sys.argv[1])))
    print(json.dumps(calibration_document(found)))
