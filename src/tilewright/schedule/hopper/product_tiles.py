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
    _parts(64, 96, 4, Price(6487, 0, 100, 77, 52, 176)),
    _parts(64, 128, 4, Price(7069, 0, 150, 64, 72, 171)),
    _parts(128, 128, 4, Price(8506, 0, 229, 145, 73, 124)),
    _parts(64, 64, 2, Price(6276, 0, 94, 51, 77, 160)),
    _parts(64, 96, 2, Price(6998, 0, 88, 100, 79, 157)),
    _parts(64, 128, 2, Price(7304, 0, 137, 94, 71, 165)),
    _parts(128, 128, 2, Price(9231, 0, 197, 114, 114, 150)),
    _parts(128, 192, 2, Price(10334, 0, 296, 197, 107, 100)),
    ProductTile(128, 128, Price(12751, 0, 115, 287, 137, 141), kernels=True),
    ProductTile(16, 64, Price(3491, 1467, 75, 19, 0, 171), swapped=True),
    ProductTile(32, 64, Price(3667, 1416, 83, 12, 7, 188), swapped=True),
    _swapped(104, 128, Price(4614, 2003, 185, 109, 94, 165)),
    _swapped(160, 128, Price(4985, 3430, 286, 125, 51, 90), (2, 1)),
    _swapped(80, 128, Price(5460, 1276, 173, 103, 59, 142), (1, 2)),
    _cluster(64, 128, (4, 1), Price(4413, 1609, 172, 30, 16, 186)),
    _cluster(128, 128, (4, 1), Price(4729, 1880, 250, 135, 19, 28)),
    _cluster(128, 128, (2, 2), Price(4671, 2028, 230, 141, 11, 65)),
    _cluster(128, 128, (1, 4), Price(4543, 2093, 215, 147, 21, 116)),
    _cluster(128, 160, (2, 1), Price(6150, 876, 290, 109, 49, 89)),
    _cluster(128, 192, (2, 1), Price(6140, 1018, 380, 94, 42, 77)),
    _cluster(128, 192, (1, 2), Price(6185, 950, 377, 107, 60, 78)),
    _cluster(128, 224, (2, 1), Price(6255, 1455, 399, 138, 39, 75), straddling=True),
    _cluster(128, 256, (2, 1), Price(6467, 1468, 486, 140, 20, 50), straddling=True),
    _cluster(192, 128, (1, 2), Price(6290, 1024, 369, 99, 25, 129), straddling=True),
    _ping_pong(192, Price(5317, 1207, 461, 0, 34, 94), (2, 1)),
    _ping_pong(208, Price(5385, 1348, 476, 0, 41, 97), (2, 1)),
    _ping_pong(128, Price(5366, 548, 338, 0, 196, 40)),
    _ping_pong(160, Price(5689, 630, 404, 0, 211, 42)),
    _ping_pong(192, Price(5518, 809, 480, 0, 178, 21)),
    _ping_pong(208, Price(5648, 890, 518, 0, 212, 16)),
    _cluster(192, 128, (1, 1), Price(5397, 937, 370, 104, 137, 101)),
    _cluster(192, 160, (1, 1), Price(5501, 1204, 446, 150, 136, 64)),
    _cluster(192, 192, (1, 1), Price(5370, 1450, 607, 115, 109, 86)),
    _cluster(256, 160, (1, 1), Price(5159, 2044, 627, 178, 143, 83)),
    ProductTile(64, 64, Price(4778, 542, 85, 31, 87, 176)),
    ProductTile(64, 128, Price(4783, 604, 140, 50, 92, 151)),
    ProductTile(64, 256, Price(4889, 1308, 265, 73, 215, 68)),
    ProductTile(128, 64, Price(5116, 506, 134, 83, 99, 186)),
    ProductTile(128, 96, Price(5189, 639, 183, 91, 102, 162)),
    ProductTile(128, 112, Price(5226, 784, 208, 98, 109, 134)),
    ProductTile(128, 128, Price(5318, 735, 242, 79, 125, 123)),
    ProductTile(128, 160, Price(5563, 864, 317, 93, 133, 63)),
    ProductTile(128, 192, Price(5537, 976, 375, 104, 119, 61)),
    ProductTile(128, 224, Price(5551, 1156, 405, 150, 148, 54)),
    ProductTile(128, 256, Price(5679, 1265, 490, 153, 124, 21)),
)
"""In dispatch order; the last one serves every launch. ``benchmarks/fitted_prices.py`` makes the prices, by least
squares over the times of 971 products (A B^T and A B in bf16, A B^T in e4m3; H200). Ways that were timed and left out,
because others are as quick wherever they are the best: twelve (docs/measured/products.md)."""


def of_loaded_bounds(tile: ProductTile) -> bool:
    """Whether products whose rows' bounds are loaded are offered a tile."""
    widths = {ROWS: (64, 128), 2 * ROWS: (128, 192, 256)}
    return tile.plain and tile.columns in widths.get(tile.rows, ())
