// Tiles brought into shared memory and summed, for tma_prices.py: by tensor copies, by cp.async or by loads and stores.
//
// METHOD 0: one thread issues BOXES tensor copies a tile; 1: 128 threads issue cp.async of VEC bytes; 2: 128 threads load VEC
// bytes into registers and store them. The tile has TILE_ROWS rows of TILE_ROW_BYTES, in panels of PANEL_ROW_BYTES that
// are PANEL_BYTES apart, swizzled by SWIZZLE_MASK. 128 other threads add up every byte of every tile, 16 at a time, of
// each row the first ASKED_BYTES where the tile was made wider. If rows are shifted they load elements of ELEMENT bytes:
// row r is row r / CLASSES of class r % CLASSES, whose tile is CLASS_BYTES on. A warp reads rows of the same classes in
// every tile, so that it looks its shifts up once.

struct alignas(64) Map {
  unsigned long long words[16];
};

struct Maps {
  Map of[CLASSES];  // one for each class of rows
};

struct Boxes {
  int factor[3][2];  // coordinate[d] = factor[d][0] * m + factor[d][1] * n + start[box][d] for tile (m, n)
  int shift[16];     // bytes by which the rows of a class lie further right
  int start[128][3];
  int offset[128];
};

struct Source {
  const unsigned char* first;
  long long pitch_bytes;
  int rows, row_bytes;         // of the tensor
  int step[2], tiles[2];       // elements from tile to tile, and tiles, along each axis
  int reuse;                   // how often each tile is brought in
};

__device__ __forceinline__ void wait(unsigned barrier, int parity) {
  asm volatile("{ .reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @!p bra again; }" ::"r"(barrier),
               "r"(parity)
               : "memory");
}

__device__ __forceinline__ void arrive(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ unsigned add_bytes(uint4 v, unsigned part) {
  part = __dp4a(v.x, 0x01010101u, part);
  part = __dp4a(v.y, 0x01010101u, part);
  part = __dp4a(v.z, 0x01010101u, part);
  return __dp4a(v.w, 0x01010101u, part);
}

__device__ __forceinline__ unsigned element(const unsigned char* at) {
  return ELEMENT == 4   ? *reinterpret_cast<const unsigned*>(at)
         : ELEMENT == 2 ? *reinterpret_cast<const unsigned short*>(at)
                        : *at;
}

__device__ __forceinline__ unsigned place_of(int row, int byte) {
  unsigned at = byte / PANEL_ROW_BYTES * PANEL_BYTES + row * PANEL_ROW_BYTES + byte % PANEL_ROW_BYTES;
  return at ^ ((at >> 7 & SWIZZLE_MASK) << 4);
}

#if METHOD == 0
__device__ __forceinline__ void copy_tile(const Maps& maps, const Boxes& boxes, const Source&, int m, int n, unsigned slot,
                                          unsigned barrier, int) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(TX_BYTES) : "memory");
  int c[3];
#pragma unroll
  for (int i = 0; i < BOXES * CLASSES; ++i) {
    int b = i % BOXES;
    const Map* map = &maps.of[i / BOXES];
    unsigned place = slot + i / BOXES * CLASS_BYTES + boxes.offset[b];
#pragma unroll
    for (int d = 0; d < RANK; ++d) c[d] = boxes.factor[d][0] * m + boxes.factor[d][1] * n + boxes.start[b][d];
#if RANK == 1
    asm volatile("cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3}], [%2];" ::
                     "r"(place), "l"(map), "r"(barrier), "r"(c[0]) : "memory");
#else
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::
                     "r"(place), "l"(map), "r"(barrier), "r"(c[0]), "r"(c[1]) : "memory");
#endif
  }
}
#else
constexpr int kPerRow = TILE_ROW_BYTES / VEC, kVectors = TILE_ROWS * kPerRow;

template <int N> struct Vector;
template <> struct Vector<1> { using type = unsigned char; };
template <> struct Vector<2> { using type = unsigned short; };
template <> struct Vector<4> { using type = unsigned; };
template <> struct Vector<8> { using type = uint2; };
template <> struct Vector<16> { using type = uint4; };

__device__ __forceinline__ void copy_tile(const Maps&, const Boxes&, const Source& s, int m, int n, unsigned slot,
                                          unsigned barrier, int thread) {
  int first_row = m * s.step[0], first_byte = n * TILE_STEP_BYTES;
  const unsigned char* from = s.first + first_row * s.pitch_bytes + first_byte;
#if METHOD == 1
#if VEC == 16
#define CACHE "cg"
#else
#define CACHE "ca"
#endif
#pragma unroll 8
  for (int i = thread; i < kVectors; i += 128) {
    int row = i / kPerRow, byte = i % kPerRow * VEC;
    bool inside = first_row + row < s.rows && first_byte + byte < s.row_bytes;
    const unsigned char* source = from + row * s.pitch_bytes + byte;
    asm volatile("cp.async." CACHE ".shared.global [%0], [%1], %2, %3;" ::"r"(slot + place_of(row, byte)),
                 "l"(inside ? source : s.first), "n"(VEC), "r"(inside ? VEC : 0)
                 : "memory");
  }
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
#else
  using T = Vector<VEC>::type;
  constexpr int kTogether = 8;
  for (int begin = thread; begin < kVectors; begin += 128 * kTogether) {
    T held[kTogether] = {};
#pragma unroll
    for (int u = 0; u < kTogether; ++u) {
      int i = begin + 128 * u, row = i / kPerRow, byte = i % kPerRow * VEC;
      if (i < kVectors && first_row + row < s.rows && first_byte + byte < s.row_bytes)
        held[u] = __ldg(reinterpret_cast<const T*>(from + row * s.pitch_bytes + byte));
    }
#pragma unroll
    for (int u = 0; u < kTogether; ++u) {
      int i = begin + 128 * u, row = i / kPerRow, byte = i % kPerRow * VEC;
      if (i < kVectors) *reinterpret_cast<T*>(__cvta_shared_to_generic(slot + place_of(row, byte))) = held[u];
    }
  }
  arrive(barrier);
#endif
}
#endif

extern "C" __global__ void __launch_bounds__(256) reader(const __grid_constant__ Maps maps, const __grid_constant__ Boxes boxes,
                                                         const __grid_constant__ Source s, unsigned long long* sum) {
  extern __shared__ uint4 raw[];
  __shared__ alignas(8) unsigned long long barriers[2 * STAGES];
  unsigned start = static_cast<unsigned>(__cvta_generic_to_shared(raw));
  unsigned ring = (start + 1023u) & ~1023u;
  unsigned full = static_cast<unsigned>(__cvta_generic_to_shared(barriers)), empty = full + 8 * STAGES;
  uint4* tiles = raw + (ring - start) / 16;
  for (int i = threadIdx.x; i < STAGES * STAGE_BYTES / 16; i += 256) tiles[i] = uint4{0, 0, 0, 0};
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; ++i) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(full + 8 * i), "r"(METHOD == 0 ? 1 : 128));
      asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(empty + 8 * i), "r"(128));
    }
    asm volatile("fence.mbarrier_init.release.cluster;");
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  int items = s.tiles[0] * s.tiles[1] * s.reuse;
  int slot = 0, round = 0;
  if (threadIdx.x >= 128) {
    if (METHOD == 0 && threadIdx.x > 128) return;
    for (int i = blockIdx.x; i < items; i += gridDim.x) {
      if (round > 0) wait(empty + 8 * slot, (round - 1) & 1);
      int tile = i / s.reuse;
      copy_tile(maps, boxes, s, tile / s.tiles[1], tile % s.tiles[1], ring + slot * STAGE_BYTES, full + 8 * slot,
                threadIdx.x - 128);
      if (++slot == STAGES) slot = 0, ++round;
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
    return;
  }
#if ELEMENT
  // Row warp + 4 i of a tile: its class is one of kShifts, and kStepBytes lead from one row of the class to the next.
  constexpr int kColumns = TILE_ROW_BYTES / ELEMENT, kShifts = CLASSES > 4 ? CLASSES / 4 : 1;
  constexpr int kStepBytes = 4 * kShifts / CLASSES * PANEL_ROW_BYTES;
  constexpr int kTail = kColumns % 32;  // columns of the last load of a row: the other lanes read one that is not counted
  const int lane = threadIdx.x % 32, tail = kColumns - kTail + min(lane, kTail - 1);
  const unsigned counted = lane < kTail ? 0x01010101u : 0;
  static_assert(TILE_ROWS % (4 * kShifts) == 0 && TILE_ROW_BYTES + 16 - ELEMENT <= PANEL_ROW_BYTES, "one panel");
  unsigned places[kShifts];
#pragma unroll
  for (int k = 0; k < kShifts; ++k) {
    int row = threadIdx.x / 32 + 4 * k;
    places[k] = row % CLASSES * CLASS_BYTES + row / CLASSES * PANEL_ROW_BYTES + boxes.shift[row % CLASSES];
  }
#endif
  unsigned long long total = 0;
  for (int i = blockIdx.x; i < items; i += gridDim.x) {
    wait(full + 8 * slot, round & 1);
    unsigned part = 0;
    const uint4* tile = tiles + slot * (STAGE_BYTES / 16);
#if ELEMENT
    const unsigned char* bytes = reinterpret_cast<const unsigned char*>(tile);
#pragma unroll
    for (int i = 0; i < TILE_ROWS / 4; ++i) {
      const unsigned char* row = bytes + places[i % kShifts] + i / kShifts * kStepBytes;
#pragma unroll
      for (int q = 0; q < kColumns / 32; ++q) part = __dp4a(element(row + (lane + 32 * q) * ELEMENT), 0x01010101u, part);
      if (kTail) part = __dp4a(element(row + tail * ELEMENT), counted, part);
    }
#elif ASKED_BYTES
#pragma unroll
    for (int byte = 0; byte < ASKED_BYTES; byte += PANEL_ROW_BYTES) {
      const int vectors = (ASKED_BYTES - byte < PANEL_ROW_BYTES ? ASKED_BYTES - byte : PANEL_ROW_BYTES) / 16;
#pragma unroll 8
      for (int j = threadIdx.x; j < TILE_ROWS * vectors; j += 128)
        part = add_bytes(tile[place_of(j / vectors, byte + j % vectors * 16) / 16], part);
    }
#else
#pragma unroll 8
    for (int j = threadIdx.x; j < USED_BYTES / 16; j += 128) part = add_bytes(tile[j], part);
#endif
    arrive(empty + 8 * slot);
    total += part;
    if (++slot == STAGES) slot = 0, ++round;
  }
#pragma unroll
  for (int lanes = 16; lanes; lanes /= 2) total += __shfl_xor_sync(~0u, total, lanes);
  __shared__ unsigned long long parts[4];
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = total;
  asm volatile("bar.sync 1, 128;" ::: "memory");
  // One addition a CTA: those of single threads would queue at one address for longer than small tensors take.
  if (threadIdx.x == 0) atomicAdd(sum, parts[0] + parts[1] + parts[2] + parts[3]);
}

// The tensor copied once into rows of target_pitch bytes: 16 bytes a thread, read as aligned words that are shifted.
extern "C" __global__ void __launch_bounds__(256) stage(const unsigned char* source, long long pitch, int row_bytes, int rows,
                                                        unsigned char* target, int target_pitch) {
  int units = target_pitch / 16;
  long long every = static_cast<long long>(rows) * units;
  for (long long i = blockIdx.x * 256ll + threadIdx.x; i < every; i += gridDim.x * 256ll) {
    int row = i / units, byte = i % units * 16;
    unsigned long long from = reinterpret_cast<unsigned long long>(source) + row * pitch + byte;
    const unsigned* words = reinterpret_cast<const unsigned*>(from & ~3ull);
    unsigned shift = (from & 3) * 8, left = row_bytes - byte;
    unsigned held[5], out[4];
#pragma unroll
    for (int w = 0; w < 5; ++w) held[w] = w * 4 < left + (from & 3) ? __ldg(words + w) : 0;
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      out[w] = __funnelshift_r(held[w], held[w + 1], shift);
      int valid = static_cast<int>(left) - 4 * w;
      if (valid < 4) out[w] = valid <= 0 ? 0 : out[w] & ((1u << 8 * valid) - 1);
    }
    *reinterpret_cast<uint4*>(target + static_cast<long long>(row) * target_pitch + byte) = uint4{out[0], out[1], out[2], out[3]};
  }
}
