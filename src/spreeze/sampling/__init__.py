"""The sampler process."""
