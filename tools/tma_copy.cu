// One tile between a tensor and shared memory through a tensor map, for tma_execute.py.
//
// is_store == 0: shared memory is filled with 0xEE, the boxes are loaded, shared memory is copied to `image`.
// is_store == 1: shared memory is filled from `image` and the boxes are stored; is_store == 2: boxes of two dimensions are
// added as 32-bit integers.
// *status is 1 once every byte that the barrier expects has arrived (load), or the stores are complete.

struct alignas(64) Map {
  unsigned long long words[16];
};

template <int R>
__device__ void load(unsigned dst, const Map* map, const int* c, unsigned bar);
template <int R>
__device__ void store(unsigned src, const Map* map, const int* c);

#define COPY(R, COORDS, ...)                                                                                  \
  template <>                                                                                                 \
  __device__ void load<R>(unsigned dst, const Map* map, const int* c, unsigned bar) {                         \
    asm volatile("cp.async.bulk.tensor." #R "d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"      \
                 " [%0], [%1, " COORDS "], [%2];" ::"r"(dst), "l"(map), "r"(bar), __VA_ARGS__ : "memory");    \
  }                                                                                                           \
  template <>                                                                                                 \
  __device__ void store<R>(unsigned src, const Map* map, const int* c) {                                      \
    asm volatile("cp.async.bulk.tensor." #R "d.global.shared::cta.tile.bulk_group"                            \
                 " [%1, " COORDS "], [%0];" ::"r"(src), "l"(map), "r"(0), __VA_ARGS__ : "memory");            \
  }
COPY(1, "{%3}", "r"(c[0]))
COPY(2, "{%3, %4}", "r"(c[0]), "r"(c[1]))
COPY(3, "{%3, %4, %5}", "r"(c[0]), "r"(c[1]), "r"(c[2]))
COPY(4, "{%3, %4, %5, %6}", "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]))
COPY(5, "{%3, %4, %5, %6, %7}", "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]), "r"(c[4]))

extern "C" __global__ void copy(const __grid_constant__ Map map, int rank, int copies, const int* coords,
                                const int* offsets, int tx, int bytes, int is_store, unsigned char* image,
                                int* status) {
  extern __shared__ unsigned char raw[];
  __shared__ alignas(8) unsigned long long barrier;
  unsigned start = static_cast<unsigned>(__cvta_generic_to_shared(raw));
  unsigned base = (start + 1023u) & ~1023u;
  unsigned char* tile = raw + (base - start);
  unsigned bar = static_cast<unsigned>(__cvta_generic_to_shared(&barrier));
  for (int i = threadIdx.x; i < bytes; i += blockDim.x) tile[i] = is_store ? image[i] : 0xEE;
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(bar));
    asm volatile("fence.mbarrier_init.release.cluster;");
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (is_store) {
    if (threadIdx.x == 0) {
      for (int i = 0; i < copies; ++i) {
        const int* c = coords + 5 * i;
        unsigned src = base + offsets[i];
        if (rank == 1) store<1>(src, &map, c);
        if (rank == 2 && is_store == 1) store<2>(src, &map, c);
        if (rank == 2 && is_store == 2) {
          asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%0, {%1, %2}], [%3];" ::
                           "l"(&map), "r"(c[0]), "r"(c[1]), "r"(src)
                       : "memory");
        }
        if (rank == 3) store<3>(src, &map, c);
        if (rank == 4) store<4>(src, &map, c);
        if (rank == 5) store<5>(src, &map, c);
      }
      asm volatile("cp.async.bulk.commit_group;" ::: "memory");
      asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
      *status = 1;
    }
    return;
  }
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(tx) : "memory");
    for (int i = 0; i < copies; ++i) {
      const int* c = coords + 5 * i;
      unsigned dst = base + offsets[i];
      if (rank == 1) load<1>(dst, &map, c, bar);
      if (rank == 2) load<2>(dst, &map, c, bar);
      if (rank == 3) load<3>(dst, &map, c, bar);
      if (rank == 4) load<4>(dst, &map, c, bar);
      if (rank == 5) load<5>(dst, &map, c, bar);
    }
  }
  int done = 0;
  long long begin = clock64();
  while (!done && clock64() - begin < 100000000ll) {
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.s32 %0, 1, 0, p; }"
                 : "=r"(done)
                 : "r"(bar)
                 : "memory");
  }
  __syncthreads();
  for (int i = threadIdx.x; i < bytes; i += blockDim.x) image[i] = tile[i];
  if (threadIdx.x == 0) *status = done;
}
