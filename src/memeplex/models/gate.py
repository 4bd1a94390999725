"""The switch for requests to models, under the name it has for users; it lies lower, since embedders obey it too."""

from memeplex.endpoint.gate import allow_requests, check_allowed, requests_allowed

__all__ = ["allow_requests", "check_allowed", "requests_allowed"]
