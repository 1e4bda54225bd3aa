#!/usr/bin/python3
"""Whether a daemon is well: healthy PORT, which listens, or healthy URL WORD…, whose page holds each of the words."""

import socket
import sys
import urllib.request

place, *words = sys.argv[1:]
if words:
    with urllib.request.urlopen(place.replace("//here:", f"//{socket.gethostname()}:"), timeout=5) as answer:
        text = answer.read().decode()
    sys.exit(not all(word in text for word in words))
socket.create_connection((socket.gethostname(), int(place)), timeout=5).close()
