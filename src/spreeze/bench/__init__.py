"""Measurements that users can repeat: `spreeze bench`. Each compares figures of one run with each other."""
