"""Requests to OpenAI-compatible endpoints: what language models and embedders share, and neither knows of the other.

``gate`` says whether requests may be made, ``address`` where they go, ``client`` sends them, ``answer`` says what went
wrong, and ``backoff`` tries again.
"""
