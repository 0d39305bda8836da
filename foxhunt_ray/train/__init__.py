"""One model, one stream, one device; no Ray."""
