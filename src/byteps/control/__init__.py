"""What scheduler, servers and workers share: messages, handshake, connections."""
