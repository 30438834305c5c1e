"""The client library: publish, subscribe, advertise. Import it from `producers`."""
