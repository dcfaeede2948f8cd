"""The version of Spreeze."""

VERSION = "0.1.0"
