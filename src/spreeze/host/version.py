"""The version of Spreeze, for whoever writes it down."""

VERSION = "0.1.0"
