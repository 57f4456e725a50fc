"""Delayed delivery: records that wait in their partition until the time that their producer gave them."""
