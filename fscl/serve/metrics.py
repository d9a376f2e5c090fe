"""Counters in Prometheus' text format."""

import threading
from collections import Counter

from fscl.process import peak_memory

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # seconds


class Metrics:
    """How many requests of each kind, and how long they took."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._buckets: Counter[tuple[str, float]] = Counter()
        self._seconds: Counter[str] = Counter()
        self._counts: Counter[str] = Counter()

    def count(self, method: str, path: str, status: int, seconds: float) -> None:
        """One request; `path` is that of the route, so that their number is bounded."""
        with self._lock:
            self._requests[method, path, status] += 1
            self._counts[path] += 1
            self._seconds[path] += seconds  # type: ignore[assignment]
            for bound in BUCKETS:
                if seconds <= bound:
                    self._buckets[path, bound] += 1

    def text(self, gauges: dict[str, tuple[str, float]]) -> str:
        """All of it.

        Args:
            gauges: values of this moment by name, each with what it is.
        """
        lines = ["# HELP fscl_requests_total Requests that were answered.", "# TYPE fscl_requests_total counter"]
        with self._lock:
            for (method, path, status), n in sorted(self._requests.items()):
                lines.append(f'fscl_requests_total{{method="{method}",path="{path}",status="{status}"}} {n}')
            lines += ["# HELP fscl_request_seconds Time to answer.", "# TYPE fscl_request_seconds histogram"]
            for path in sorted(self._counts):
                for bound in BUCKETS:
                    lines.append(
                        f'fscl_request_seconds_bucket{{path="{path}",le="{bound}"}} {self._buckets[path, bound]}'
                    )
                lines.append(f'fscl_request_seconds_bucket{{path="{path}",le="+Inf"}} {self._counts[path]}')
                lines.append(f'fscl_request_seconds_sum{{path="{path}"}} {self._seconds[path]:.6f}')
                lines.append(f'fscl_request_seconds_count{{path="{path}"}} {self._counts[path]}')
        peak = ("Resident memory at its highest, in bytes.", float(peak_memory()))
        for name, (what, value) in {**gauges, "fscl_peak_memory_bytes": peak}.items():
            kind = "counter" if name.endswith("_total") else "gauge"
            lines += [
                f"# HELP {name} {what}",
                f"# TYPE {name} {kind}",
                f"{name} {int(value) if value == int(value) else value}",
            ]
        return "\n".join(lines) + "\n"
