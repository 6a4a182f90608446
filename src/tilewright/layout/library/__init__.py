"""A library of layout algebra for users; no pass of the compiler imports it (import contract ``layout-library``).

``cute_algebra``, ``cute_ops``, ``swizzle_algebra``: CuTe's operations, also over symbolic extents. ``f2_algebra``,
``encodings``: Triton's LinearLayout operations and tile encodings. ``affine*``, ``piecewise``, ``domain``: integer maps
on boxes and Presburger sets. ``fragments``: registers of mma, wgmma, ldmatrix and tcgen05. ``conversions``: translation
between the kinds, and equality across them. ``hierarchy``: which threads take part in a layout conversion.

Every operation answers for all values of its symbols or refuses with a LAY code. ``examples/layouts.md`` shows most.
"""
