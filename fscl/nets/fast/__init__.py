"""Faster ways to the same numbers; the plain way is always there to test against.

conv4_curvature.curvature_of    derivatives of Conv-4 written out by hand, where they apply
patches.cut                     images made ready, so that the first block of Conv-4 is computed without its large map
winograd                        convolutions with fewer multiplications, inside conv4_curvature
"""
