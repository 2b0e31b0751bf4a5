"""`python -IS launch.py SOCKET words...`: has `tests.warm` run a command, and stands in for it.

It gives its folder, environment, stdin, stdout and stderr to the command, hands signals on, and
ends as the command ends. Where it is killed, so is the command.
"""

import json
import os
import signal
import socket
import sys

HANDED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> None:
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    server.connect(sys.argv[1])
    asked = {"words": sys.argv[2:], "folder": os.getcwd(), "environment": dict(os.environ)}
    for number in HANDED_ON:
        signal.signal(number, lambda number, _: server.send(bytes([number])))
    socket.send_fds(server, [json.dumps(asked).encode()], [0, 1, 2])
    for descriptor in range(3):  # only the command holds them, as the other end may wait to see
        os.close(descriptor)
    answer = server.recv(16)
    status = int(answer) if answer else 1
    if status < 0:
        for number in HANDED_ON:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


main()
