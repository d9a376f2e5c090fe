"""Makes the picture in the README from a finished demo: `fscl demo && python examples/demo_figure.py`.

Writes an SVG on white paper; the report itself draws the same figure in the page's own colours.
"""

import sys
from pathlib import Path

from fscl.experiment.record import RunRecord
from fscl.report.figures import accuracy_svg
from fscl.report.results import read_results

run = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/demo")
out = Path(__file__).resolve().parent.parent / "docs" / "images" / "demo.svg"
svg = accuracy_svg(read_results(RunRecord(run)))
out.write_text(svg.replace('style="', 'style="color: #222; background: #fff; ', 1))
print(out)
