"""A policy that acts without torch: the actor, its file format, its export."""
