"""One round between hospitals: messages, masks, the release gate, and the protocol."""
