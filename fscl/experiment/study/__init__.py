"""Several configurations as one piece of work: bases that are trained, and runs that begin with them."""
