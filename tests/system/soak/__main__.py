"""Runs a soak; nothing here is imported by its members."""

from __future__ import annotations

import asyncio
import sys


def main() -> None:
    import msgspec

    from tests.system.soak.conductor import Soak, SoakSettings

    settings = msgspec.json.decode(sys.argv[1], type=SoakSettings)
    print(msgspec.json.encode(asyncio.run(Soak(settings).run())).decode())


if __name__ == "__main__":
    main()
