"""What test_barrier.py runs in ranks."""

from __future__ import annotations

import os
import signal
import socket
from contextlib import suppress
from pathlib import Path

import numpy as np

from jobs.barrier import Rank


def total(rank: Rank) -> None:
    """Each rank's sum and numbers of rows go to all; the first tells what it got."""
    own = sum(batch["x"].to_numpy().sum() for batch in rank.rows)
    answer = rank.link.gather("sum", {"sum": int(own), "rows": sum(len(batch) for batch in rank.rows)}, b"\xff" * 3)
    rank.link.tell("total", {"rank": rank.number, **answer.values, "hosts": len(rank.hosts)}, *answer.parts)


def refuse(rank: Rank) -> None:
    """One rank finds a mistake while the others wait for it."""
    if rank.number == rank.count - 1:
        rank.link.refuse("row 3 holds nan")
    rank.link.gather("sum", {})


def die_once(rank: Rank, deaths: str) -> None:
    """The second rank is killed in the first attempt; the next one finds what the first had told."""
    if rank.number == 0:
        rank.link.tell("checkpoint", {"death": Path(deaths).exists()}, np.arange(3).tobytes())
    deaths_seen = rank.link.gather("sum", {"sum": int(Path(deaths).exists()), "rows": 0}).values["sum"]
    if rank.number == 1 and not Path(deaths).exists():
        Path(deaths).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    rank.link.gather("again", {})
    rank.link.tell("total", {"rank": rank.number, "death": deaths_seen})


def intrude(rank: Rank) -> None:
    """A stranger without the token gets nothing, and disturbs nobody."""
    address = rank.link._socket.getpeername()
    for bytes_sent in (
        b"GET / HTTP/1.0\r\n\r\n",
        b"\x00\x00\x00\x27" + b'["hello",{"token":"0","rank":0},[99999]]'[:39],
    ):
        with socket.create_connection(address, 5) as stranger:
            stranger.settimeout(5)
            stranger.sendall(bytes_sent)
            stranger.shutdown(socket.SHUT_WR)
            with suppress(ConnectionResetError):  # it was closed before all was read
                assert stranger.recv(100) == b""
    total(rank)
