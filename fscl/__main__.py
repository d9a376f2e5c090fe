"""`python -m fscl` is `fscl`: for `torchrun`, which starts modules."""

from fscl.cli import main

main()
