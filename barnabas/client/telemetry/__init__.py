"""Pushes a client's metrics to brokers that ask for them (KIP-714).

`push_session.py` decides what is sent when; `metrics_push.py` sends it; `meters.py` measures what only the push needs.
Nothing is sent unless a broker offers it, and nothing is measured unless a subscription asks for it.
"""
