"""Tiles of matrix products that are offered where rows and columns are free, and their prices."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.schedule.hopper.candidate import Candidate
from tilewright.schedule.hopper.operands import ROWS
from tilewright.schedule.hopper.tile_prices import Price


@dataclass(frozen=True)
class ProductTile:
    """A tile of ``rows`` x ``columns`` of the result, its price, and how it is computed: by ``candidate``, or where
    that is None by the first that serves."""

    rows: int
    columns: int
    price: Price
    candidate: Candidate | None = None
    parts: int = 1
    """Of the stream, which the CTAs of a cluster add."""
    kernels: bool = False
    """A second kernel adds parts, as many as leave no SM idle."""
    swapped: bool = False
    """The operands are, so that the columns are the rows of wgmma."""
    straddling: bool = False
    """Only for operands whose rows begin inside of L2 lines: of others it gains nothing, and loses up to 3 % where
    there are many waves (8192^3, H200)."""

    @property
    def plain(self) -> bool:
        """It is computed as any product is."""
        return self.candidate is None and not (self.kernels or self.swapped)

    @property
    def copied(self) -> bool:
        """It is for operands that tensor copies can read alone: clusters share what these bring, and with operands that
        threads copy, few wide or low tiles leave SMs without (not timed)."""
        clustered = self.candidate is not None and self.candidate.cluster != (1, 1)
        return (clustered and self.parts == 1) or (self.plain and (self.rows, self.columns) in ((64, 256), (128, 64)))

    @property
    def of_loaded_bounds(self) -> bool:
        """Products whose rows' bounds are loaded are offered it."""
        return self.plain and (self.rows, self.columns) in ((64, 64), (64, 128), (128, 128), (128, 192), (128, 256))

    @property
    def _turns(self) -> bool:
        return self.candidate is not None and self.candidate.ping_pong > 1

    @property
    def epilogue(self) -> tuple[int, int]:
        """The time of an element of the result in percent of that where two warpgroups share a tile, in products of
        few and of many steps. One warpgroup waits for its own instructions. By ping-pong the other's products hide it
        in part (H200, 12 shapes with GELU, with a residual and with both: 1.0 to 1.3 for 128 columns, for 192 1.6 to
        2.0 in products of at most 16 steps and .5 to .8 in those of 64)."""
        if self._turns:
            return (110, 110) if self.columns == 2 * ROWS else (180, 80)
        return (140, 140) if self.rows == ROWS else (100, 100)

    @property
    def for_long_epilogues(self) -> bool:
        """Not by ping-pong where the epilogue has panels of several widths and therefore no loop: its text is read anew
        for each tile (GELU, 128 x 160: 2.2 to 3.8 times the time of two warpgroups)."""
        return not self._turns or self.columns % 64 == 0

    @property
    def for_loads(self) -> bool:
        """Registers are left for tiles that the epilogue loads. (208 columns of one warpgroup spill 960 bytes.)"""
        return not self._turns or self.columns < 208

    @property
    def any_extent(self) -> bool:
        """It is also offered with stores by rows, for results whose extents tensor copies can't store."""
        return self.plain and (self.rows, self.columns) in ((64, 64), (128, 128), (128, 256))

    @property
    def few_waves(self) -> bool:
        """It is for launches of few waves: where the last one is a large part, several widths fill it; where there are
        many, an epilogue after each tile costs more than what they gain (two products side by side, 2048 x 8192 x 2048,
        H200: 241 us in 128 x 224, 208 by ping-pong)."""
        return self.plain and self.rows == 2 * ROWS and self.columns not in (128, 192, 256)

    @property
    def one_row(self) -> bool:
        """It is for one row of tiles. Each byte of the right operand is read once then, and no copies are of rows that
        are not there (8192 x 8192 of one and 16 rows, H200: 44 us, with tiles of 64 rows 54 to 59)."""
        return self.swapped and self.rows < ROWS

    @property
    def one_wave(self) -> bool:
        """L2 need not keep what its programs read: mostly all run at one time."""
        return self.parts > 1 or self.kernels or (self.rows == ROWS and self.plain)


def _parts(rows: int, columns: int, parts: int, price: Price) -> ProductTile:
    return ProductTile(rows, columns, price, Candidate(rows // ROWS, cluster=(1, parts)), parts=parts)


def _swapped(rows: int, columns: int, price: Price, cluster: tuple[int, int] = (1, 1)) -> ProductTile:
    return ProductTile(rows, columns, price, _shared(columns, cluster), swapped=True)


def _cluster(
    rows: int, columns: int, cluster: tuple[int, int], price: Price, *, straddling: bool = False
) -> ProductTile:
    return ProductTile(rows, columns, price, _shared(rows, cluster), straddling=straddling)


def _ping_pong(columns: int, price: Price, cluster: tuple[int, int] = (1, 1)) -> ProductTile:
    """Two warpgroups compute a tile each, in turns: one's epilogue is hidden behind the other's products. Each holds a
    whole tile in registers, which 224 columns exceed."""
    candidate = Candidate(1, ping_pong=2, cluster=cluster, whole_stores=True)
    return ProductTile(2 * ROWS, columns, price, candidate, straddling=cluster != (1, 1))


def _shared(height: int, cluster: tuple[int, int]) -> Candidate:
    """Two warpgroups share 128 and 256 rows of wgmma, three 192."""
    return Candidate(3 if height == 3 * ROWS else min(2, height // ROWS), cluster=cluster, whole_stores=True)


TILES = (
    _parts(64, 64, 4, Price(6426, 0, 82, 63, 41, 165)),
    _parts(64, 96, 4, Price(6490, 0, 100, 71, 53, 180)),
    _parts(64, 128, 4, Price(7147, 0, 143, 74, 86, 162)),
    _parts(128, 128, 4, Price(8602, 0, 211, 166, 76, 121)),
    _parts(64, 64, 2, Price(6323, 0, 91, 52, 88, 157)),
    _parts(64, 96, 2, Price(7016, 0, 87, 101, 83, 154)),
    _parts(64, 128, 2, Price(7360, 0, 132, 101, 81, 161)),
    _parts(128, 128, 2, Price(9260, 0, 194, 124, 113, 144)),
    _parts(128, 192, 2, Price(10329, 0, 279, 230, 125, 98)),
    ProductTile(128, 128, Price(12684, 0, 120, 275, 142, 139), kernels=True),
    ProductTile(16, 64, Price(3491, 1467, 75, 19, 0, 171), swapped=True),
    ProductTile(32, 64, Price(3667, 1416, 83, 12, 7, 188), swapped=True),
    _swapped(104, 128, Price(4759, 1883, 183, 113, 102, 162)),
    _swapped(160, 128, Price(5026, 3415, 290, 121, 54, 91), (2, 1)),
    _swapped(80, 128, Price(5571, 1184, 174, 101, 60, 143), (1, 2)),
    _cluster(64, 128, (4, 1), Price(4652, 1394, 172, 33, 16, 182)),
    _cluster(128, 128, (4, 1), Price(4682, 1892, 259, 129, 17, 21)),
    _cluster(128, 128, (2, 2), Price(4606, 2060, 244, 129, 7, 55)),
    _cluster(128, 128, (1, 4), Price(4524, 2110, 220, 143, 19, 114)),
    _cluster(128, 160, (2, 1), Price(6149, 881, 289, 111, 49, 91)),
    _cluster(128, 192, (2, 1), Price(6189, 1012, 379, 95, 41, 77)),
    _cluster(128, 192, (1, 2), Price(6179, 965, 372, 112, 60, 78)),
    _cluster(128, 224, (2, 1), Price(6319, 1431, 409, 135, 33, 65), straddling=True),
    _cluster(128, 256, (2, 1), Price(6487, 1458, 498, 134, 19, 40), straddling=True),
    _cluster(192, 128, (1, 2), Price(6238, 1007, 376, 96, 26, 125), straddling=True),
    _ping_pong(192, Price(5456, 1135, 472, 0, 35, 62), (2, 1)),
    _ping_pong(208, Price(5317, 1334, 482, 0, 41, 84), (2, 1)),
    _ping_pong(128, Price(5324, 566, 338, 0, 198, 43)),
    _ping_pong(160, Price(5609, 674, 403, 0, 209, 48)),
    _ping_pong(192, Price(5406, 856, 475, 0, 170, 35)),
    _ping_pong(208, Price(5497, 959, 514, 0, 204, 32)),
    _cluster(192, 128, (1, 1), Price(5390, 945, 363, 113, 135, 99)),
    _cluster(192, 160, (1, 1), Price(5518, 1226, 446, 152, 136, 60)),
    _cluster(192, 192, (1, 1), Price(5292, 1504, 619, 103, 111, 84)),
    _cluster(256, 160, (1, 1), Price(5280, 1986, 624, 184, 144, 79)),
    ProductTile(64, 64, Price(4808, 539, 81, 36, 88, 174)),
    ProductTile(64, 128, Price(4804, 602, 133, 58, 96, 152)),
    ProductTile(64, 256, Price(4863, 1331, 265, 73, 215, 64)),
    ProductTile(128, 64, Price(5096, 511, 138, 81, 97, 187)),
    ProductTile(128, 96, Price(5158, 651, 180, 91, 109, 171)),
    ProductTile(128, 112, Price(5208, 801, 204, 99, 117, 142)),
    ProductTile(128, 128, Price(5298, 736, 242, 81, 127, 124)),
    ProductTile(128, 160, Price(5556, 871, 309, 101, 122, 67)),
    ProductTile(128, 192, Price(5550, 983, 369, 110, 115, 62)),
    ProductTile(128, 224, Price(5593, 1164, 400, 158, 143, 46)),
    ProductTile(128, 256, Price(5701, 1269, 494, 148, 124, 19)),
)
"""In dispatch order; the last one serves every launch. ``benchmarks/fitted_prices.py`` makes the prices, by least
squares over the times of 1,151 products (A B^T and A B in bf16, A B^T in e4m3; H200). Twelve more were timed and left
out: wherever one of them is the best, others are nearly as quick (docs/measured/products.md)."""
