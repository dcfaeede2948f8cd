"""The same run on several machines, by Ray: an agent with samplers on each, and the gateway to them at the head."""

GATEWAY = "spreeze.cluster.gateway"
"""The program of the gateway, by name: who starts a run imports no Ray."""
