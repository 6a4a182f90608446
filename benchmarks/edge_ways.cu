// RMS norms of bf16 rows at any multiple of 2 bytes, and transpositions of such rows: ways that the compiler does not
// have. `skew` is how many elements lie between a 16-byte boundary and a row's first; vectors are laid from there.

typedef unsigned short u16;

__device__ __forceinline__ float low(unsigned w) { return __uint_as_float(w << 16); }
__device__ __forceinline__ float high(unsigned w) { return __uint_as_float(w & 0xffff0000u); }
__device__ __forceinline__ unsigned pack(float l, float h) {
  unsigned w;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(h), "f"(l));
  return w;
}

// Eight elements from element `by` (0 to 7) of two neighbouring vectors.
__device__ __forceinline__ uint4 funnel(uint4 a, uint4 b, int by) {
  unsigned w[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
  if (by & 4) {
    #pragma unroll
    for (int i = 0; i < 6; ++i) w[i] = w[i + 2];
  }
  if (by & 2) {
    #pragma unroll
    for (int i = 0; i < 5; ++i) w[i] = w[i + 1];
  }
  const int bits = (by & 1) * 16;
  return make_uint4(__funnelshift_r(w[0], w[1], bits), __funnelshift_r(w[1], w[2], bits),
                    __funnelshift_r(w[2], w[3], bits), __funnelshift_r(w[3], w[4], bits));
}

__device__ __forceinline__ uint4 kept(uint4 x, int first, int n) {  // elements outside of [0, n) are 0
  u16* e = reinterpret_cast<u16*>(&x);
  #pragma unroll
  for (int i = 0; i < 8; ++i) e[i] = (unsigned)(first + i) < (unsigned)n ? e[i] : (u16)0;
  return x;
}

__device__ __forceinline__ float squares(uint4 x) {
  float s = 0.f;
  const unsigned w[4] = {x.x, x.y, x.z, x.w};
  #pragma unroll
  for (int i = 0; i < 4; ++i) s += low(w[i]) * low(w[i]) + high(w[i]) * high(w[i]);
  return s;
}

__device__ __forceinline__ uint4 scaled(uint4 x, uint4 w, float by) {
  return make_uint4(pack(low(x.x) * by * low(w.x), high(x.x) * by * high(w.x)),
                    pack(low(x.y) * by * low(w.y), high(x.y) * by * high(w.y)),
                    pack(low(x.z) * by * low(w.z), high(x.z) * by * high(w.z)),
                    pack(low(x.w) * by * low(w.w), high(x.w) * by * high(w.w)));
}

__device__ __forceinline__ void stored(u16* y, uint4 x, int first, int n) {  // y at the row's first element
  if (first >= 0 && first + 8 <= n) {
    *reinterpret_cast<uint4*>(y + first) = x;
  } else {
    const u16* e = reinterpret_cast<const u16*>(&x);
    #pragma unroll
    for (int i = 0; i < 8; ++i) if ((unsigned)(first + i) < (unsigned)n) y[first + i] = e[i];
  }
}

// Weights beside a vector that begins at element `first` of its row: by elements, or by two vectors of the tensor.
__device__ __forceinline__ uint4 weights_by_element(const u16* w, int first, int n) {
  uint4 x = make_uint4(0, 0, 0, 0);
  u16* e = reinterpret_cast<u16*>(&x);
  #pragma unroll
  for (int i = 0; i < 8; ++i) if ((unsigned)(first + i) < (unsigned)n) e[i] = w[first + i];
  return x;
}

__device__ __forceinline__ uint4 weights_by_funnel(const u16* w, int first, int n, int skew) {
  if (skew == 0) return *reinterpret_cast<const uint4*>(w + first);
  const int begin = first - (8 - skew);  // a multiple of 8, or -8
  const uint4 a = *reinterpret_cast<const uint4*>(w + max(begin, 0));
  const uint4 b = *reinterpret_cast<const uint4*>(w + min(begin + 8, (n + 7) / 8 * 8 - 8));
  return funnel(a, b, 8 - skew);
}

template <int WARPS> __device__ __forceinline__ float over_cta(float s, float* parts) {
  #pragma unroll
  for (int i = 16; i; i >>= 1) s += __shfl_xor_sync(~0u, s, i);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = s;
  __syncthreads();
  s = 0.f;
  #pragma unroll
  for (int i = 0; i < WARPS; ++i) s += parts[i];
  return s;
}

// A CTA a row, vectors from the boundary.
template <int THREADS, int VECTORS, bool FUNNEL>
__device__ __forceinline__ void norm_row(const u16* x, const u16* w, u16* y, float eps, int n) {
  __shared__ float parts[THREADS / 32];
  const size_t begin = (size_t)blockIdx.x * n;
  const int skew = begin & 7;
  uint4 v[VECTORS];
  float s = 0.f;
  #pragma unroll
  for (int i = 0; i < VECTORS; ++i) {
    const int first = (i * THREADS + (int)threadIdx.x) * 8 - skew;
    v[i] = first < n ? *reinterpret_cast<const uint4*>(x + begin + first) : make_uint4(0, 0, 0, 0);
  }
  #pragma unroll
  for (int i = 0; i < VECTORS; ++i) {
    const int first = (i * THREADS + (int)threadIdx.x) * 8 - skew;
    if (first < 0 || first + 8 > n) v[i] = kept(v[i], first, n);
    s += squares(v[i]);
  }
  const float by = rsqrtf(over_cta<THREADS / 32>(s, parts) / n + eps);
  #pragma unroll
  for (int i = 0; i < VECTORS; ++i) {
    const int first = (i * THREADS + (int)threadIdx.x) * 8 - skew;
    if (first < n) {
      const uint4 scale = FUNNEL ? weights_by_funnel(w, first, n, skew) : weights_by_element(w, first, n);
      stored(y + begin, scaled(v[i], scale, by), first, n);
    }
  }
}

#define NORM(NAME, THREADS, VECTORS, CTAS, FUNNEL)                                                            \
  extern "C" __global__ void __launch_bounds__(THREADS, CTAS) NAME(const u16* x, const u16* w, u16* y, float eps, \
                                                                   int m, int n) {                            \
    norm_row<THREADS, VECTORS, FUNNEL>(x, w, y, eps, n);                                                      \
  }
NORM(norm_elements, 128, 5, 8, false)
NORM(norm_funnel, 128, 5, 8, true)
NORM(norm_funnel_192, 192, 3, 6, true)
NORM(norm_funnel_288, 288, 2, 5, true)

// A warp a row; weights in shared memory, 8 zeros before them.
extern "C" __global__ void __launch_bounds__(256, 2) norm_warps(const u16* x, const u16* w, u16* y, float eps, int m,
                                                                 int n) {
  __shared__ __align__(16) u16 held[4224 + 24];
  for (int i = threadIdx.x; i < 4224 + 24; i += 256) held[i] = i >= 8 && i - 8 < n ? w[i - 8] : (u16)0;
  __syncthreads();
  const int lane = threadIdx.x % 32;
  for (int row = blockIdx.x * 8 + threadIdx.x / 32; row < m; row += gridDim.x * 8) {
    const size_t begin = (size_t)row * n;
    const int skew = begin & 7;
    uint4 v[17];
    float s = 0.f;
    #pragma unroll
    for (int i = 0; i < 17; ++i) {
      const int first = (i * 32 + lane) * 8 - skew;
      v[i] = first < n ? *reinterpret_cast<const uint4*>(x + begin + first) : make_uint4(0, 0, 0, 0);
    }
    #pragma unroll
    for (int i = 0; i < 17; ++i) {
      const int first = (i * 32 + lane) * 8 - skew;
      if (first < 0 || first + 8 > n) v[i] = kept(v[i], first, n);
      s += squares(v[i]);
    }
    #pragma unroll
    for (int i = 16; i; i >>= 1) s += __shfl_xor_sync(~0u, s, i);
    const float by = rsqrtf(s / n + eps);
    #pragma unroll
    for (int i = 0; i < 17; ++i) {
      const int first = (i * 32 + lane) * 8 - skew;
      if (first < n) {
        const uint4* at = reinterpret_cast<const uint4*>(held) + i * 32 + lane;  // elements first + skew - 8 ...
        const uint4 scale = skew == 0 ? at[1] : funnel(at[0], at[1], 8 - skew);
        stored(y + begin, scaled(v[i], scale, by), first, n);
      }
    }
  }
}

// Rows brought by bulk copies from the boundary before them into a ring, results stored by bulk copies from it.
__device__ __forceinline__ unsigned shared_of(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void barrier_init(unsigned at, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(at), "r"(count) : "memory");
}
__device__ __forceinline__ void barrier_wait(unsigned at, int parity) {
  asm volatile("{ .reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @!p bra again; }"
               :: "r"(at), "r"(parity) : "memory");
}
__device__ __forceinline__ void bulk_load(unsigned to, const void* from, int bytes, unsigned barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               :: "r"(to), "l"(from), "r"(bytes), "r"(barrier) : "memory");
}
__device__ __forceinline__ void bulk_expect(unsigned barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(barrier), "r"(bytes) : "memory");
}

constexpr int RING = 4, PITCH = 4224 + 16;
template <int THREADS, int VECTORS>
__device__ __forceinline__ void norm_ring(const u16* x, const u16* w, u16* y, float eps, int m, int n) {
  __shared__ __align__(16) u16 held[4224 + 24];
  extern __shared__ __align__(128) u16 rows[];  // RING x PITCH
  __shared__ __align__(8) unsigned long long full[RING];
  __shared__ float parts[2][THREADS / 32];
  const int tid = threadIdx.x;
  for (int i = tid; i < 4224 + 24; i += THREADS) held[i] = i >= 8 && i - 8 < n ? w[i - 8] : (u16)0;
  if (tid == 0) {
    for (int i = 0; i < RING; ++i) barrier_init(shared_of(full + i), 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  auto bring = [&](int turn) {
    const int row = blockIdx.x + turn * gridDim.x;
    if (row >= m) return;
    const size_t begin = (size_t)row * n;
    const int skew = begin & 7, bytes = (skew + n + 7) / 8 * 16;
    bulk_expect(shared_of(full + turn % RING), bytes);
    bulk_load(shared_of(rows + turn % RING * PITCH), x + begin - skew, bytes, shared_of(full + turn % RING));
  };
  if (tid == 0) for (int i = 0; i < RING - 1; ++i) bring(i);
  for (int turn = 0; blockIdx.x + turn * gridDim.x < m; ++turn) {
    const size_t begin = (size_t)(blockIdx.x + turn * gridDim.x) * n;
    const int skew = begin & 7;
    u16* mine = rows + turn % RING * PITCH;
    barrier_wait(shared_of(full + turn % RING), turn / RING & 1);
    uint4 v[VECTORS];
    float s = 0.f;
    #pragma unroll
    for (int i = 0; i < VECTORS; ++i) {
      const int first = (i * THREADS + tid) * 8 - skew;
      v[i] = first < n ? reinterpret_cast<const uint4*>(mine)[i * THREADS + tid] : make_uint4(0, 0, 0, 0);
      if (first < 0 || first + 8 > n) v[i] = kept(v[i], first, n);
      s += squares(v[i]);
    }
    const float by = rsqrtf(over_cta<THREADS / 32>(s, parts[turn & 1]) / n + eps);
    #pragma unroll
    for (int i = 0; i < VECTORS; ++i) {
      const int first = (i * THREADS + tid) * 8 - skew;
      if (first < n) {
        const uint4* at = reinterpret_cast<const uint4*>(held) + i * THREADS + tid;
        const uint4 scale = skew == 0 ? at[1] : funnel(at[0], at[1], 8 - skew);
        const uint4 result = scaled(v[i], scale, by);
        if (first < 0 || first + 8 > n) stored(y + begin, result, first, n);
        else reinterpret_cast<uint4*>(mine)[i * THREADS + tid] = result;
      }
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (tid == 0) {
      const int before = (8 - skew) & 7, whole = (n - before) / 8;
      asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
                   :: "l"(y + begin + before), "r"(shared_of(mine + (skew ? 8 : 0))), "r"(whole * 16) : "memory");
      asm volatile("cp.async.bulk.commit_group;" ::: "memory");
      asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");
      bring(turn + RING - 1);
    }
  }
  if (tid == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
extern "C" __global__ void __launch_bounds__(288, 4) norm_ring_288(const u16* x, const u16* w, u16* y, float eps, int m,
                                                                    int n) {
  norm_ring<288, 2>(x, w, y, eps, m, n);
}
extern "C" __global__ void __launch_bounds__(192, 4) norm_ring_192(const u16* x, const u16* w, u16* y, float eps, int m,
                                                                    int n) {
  norm_ring<192, 3>(x, w, y, eps, m, n);
}

// Transposition: pieces of rows, from the boundary before each, lie in shared memory; elements are picked from there.
// PITCH of 17 vectors, and one more for every 8 rows, so that 8 lanes of 8 rows each find banks of their own.
enum { BY_BULK_COPIES, BY_ASYNC_COPIES, BY_VECTORS };
template <int HOW, int BN>
__device__ __forceinline__ void turned(const u16* x, u16* y, int m, int n) {
  constexpr int BM = 128, PIECES = BN / 8 + 1, PITCH_BYTES = PIECES * 16, THREADS = 256;
  extern __shared__ __align__(128) char tile[];  // BM * PITCH_BYTES + BM / 8 * 16
  __shared__ __align__(8) unsigned long long full;
  const int tid = threadIdx.x, tiles = (m + BM - 1) / BM;
  const int m0 = blockIdx.x % tiles * BM, n0 = blockIdx.x / tiles * BN;
  const int rows = min(BM, m - m0), columns = min(BN, n - n0);
  const size_t end = ((size_t)m * n + 7) / 8 * 8;
  if (HOW == BY_BULK_COPIES) {
    if (tid == 0) {
      barrier_init(shared_of(&full), rows);
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (tid < rows) {
      const size_t begin = (size_t)(m0 + tid) * n + n0;
      const int bytes = ((int)(begin & 7) + columns + 7) / 8 * 16;
      bulk_expect(shared_of(&full), bytes);
      bulk_load(shared_of(tile + tid * PITCH_BYTES + tid / 8 * 16), x + (begin & ~(size_t)7), bytes, shared_of(&full));
    }
    barrier_wait(shared_of(&full), 0);
  } else {
    constexpr int EACH = (BM * PIECES + THREADS - 1) / THREADS;
    #pragma unroll
    for (int i = 0; i < EACH; ++i) {
      const int piece = i * THREADS + tid, row = piece / PIECES, at = piece % PIECES;
      const size_t from = ((size_t)(m0 + row) * n + n0 & ~(size_t)7) + at * 8;
      if (row < rows && from < end) {
        char* to = tile + row * PITCH_BYTES + row / 8 * 16 + at * 16;
        if (HOW == BY_ASYNC_COPIES)
          asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(shared_of(to)), "l"(x + from) : "memory");
        else
          *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(x + from);
      }
    }
    if (HOW == BY_ASYNC_COPIES) asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
  }
  const int lane = tid % 32, warp = tid / 32;
  #pragma unroll
  for (int i = 0; i < BM * BN / 8 / THREADS; ++i) {
    // of a warp 8 lanes along rows, 4 along columns two apart; then the odd columns, then the other half of the rows
    const int turn = i * 8 + warp, half = turn % (BM / 64), group = turn / (BM / 64);
    const int column = group / 2 * 8 + lane / 8 * 2 + group % 2, row = half * 64 + lane % 8 * 8;
    u16 e[8];
    #pragma unroll
    for (int k = 0; k < 8; ++k) {
      const int skew = (int)(((size_t)(m0 + row + k) * n + n0) & 7);
      e[k] = *reinterpret_cast<const u16*>(tile + (row + k) * PITCH_BYTES + row / 8 * 16 + (column + skew) * 2);
    }
    if (column < columns && row < rows)
      *reinterpret_cast<uint4*>(y + (size_t)(n0 + column) * m + m0 + row) =
          make_uint4(e[0] | e[1] << 16, e[2] | e[3] << 16, e[4] | e[5] << 16, e[6] | e[7] << 16);
  }
}
#define TURNED(NAME, HOW, BN)                                                                                      \
  extern "C" __global__ void __launch_bounds__(256, 4) NAME(const u16* x, u16* y, int m, int n) {                  \
    turned<HOW, BN>(x, y, m, n);                                                                                   \
  }
TURNED(turned_bulk, BY_BULK_COPIES, 128)
TURNED(turned_bulk_64, BY_BULK_COPIES, 64)
TURNED(turned_async, BY_ASYNC_COPIES, 128)
TURNED(turned_async_64, BY_ASYNC_COPIES, 64)
TURNED(turned_vectors, BY_VECTORS, 128)
TURNED(turned_vectors_64, BY_VECTORS, 64)
