"""Make, check and step environments, many at once."""
