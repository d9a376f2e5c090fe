"""The data sets that come with the package, one object a file; a new file here is found by `fscl.data.catalogue`."""
