"""Regression scenarios: what went wrong in other systems, each as a story that must end well here."""
