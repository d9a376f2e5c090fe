"""Makes the picture in the README from a finished demo: `fscl demo && python examples/demo_figure.py`.

It is the file figures/two_sides.svg of the run; the page draws the same in its own colours.
"""

import sys
from pathlib import Path

from fscl.experiment.record import RunRecord
from fscl.report.figures.svg import stand_alone
from fscl.report.figures.two_sides import two_sides_svg
from fscl.report.results import read_results

run = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/demo")
out = Path(__file__).resolve().parent.parent / "docs" / "images" / "demo.svg"
out.write_text(stand_alone(two_sides_svg(read_results(RunRecord(run)))))
print(out)
