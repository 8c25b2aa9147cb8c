// What every kernel shares. An activation is [rows, channels], channels last: a view begins at its first channel, and
// consecutive rows lie `stride` values apart. Kernels come in four variants, NAME_{f,b}{1,8}: f32 or bf16 values, one
// or eight channels per thread. Compiled at run time without any header of the toolkit, which a machine that only runs
// us need not have.

typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned short bf16;

#define DEVICE __device__ __forceinline__
#define INFINITY __int_as_float(0x7f800000)

DEVICE float widen(float x) { return x; }
DEVICE float widen(bf16 x) { return __uint_as_float((u32)x << 16); }

template <typename T> DEVICE T narrow(float x);
template <> DEVICE float narrow<float>(float x) { return x; }
template <> DEVICE bf16 narrow<bf16>(float x) {
    bf16 r;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(x));
    return r;
}

DEVICE u32 narrow_pair(float low, float high) {
    u32 r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}

// V consecutive values, as wide as the memory system likes them: raw while they are on their way, f32 to compute with.
template <typename T, int V> struct Lanes;

template <typename T> struct Lanes<T, 1> {
    typedef T Raw;
    static DEVICE void widen_all(Raw raw, float (&v)[1]) { v[0] = widen(raw); }
    static DEVICE void store(T *p, const float (&v)[1]) { *p = narrow<T>(v[0]); }
};

struct Float8 {
    float4 low, high;
};

template <> struct Lanes<float, 8> {
    typedef Float8 Raw;
    static DEVICE void widen_all(Raw raw, float (&v)[8]) {
        float4 a = raw.low, b = raw.high;
        v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w, v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
    }
    static DEVICE void store(float *p, const float (&v)[8]) {
        ((float4 *)p)[0] = make_float4(v[0], v[1], v[2], v[3]);
        ((float4 *)p)[1] = make_float4(v[4], v[5], v[6], v[7]);
    }
};

template <> struct Lanes<bf16, 8> {
    typedef uint4 Raw;
    static DEVICE void widen_all(Raw raw, float (&v)[8]) {
        u32 w[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
        for (int i = 0; i < 4; i++)
            v[2 * i] = __uint_as_float(w[i] << 16), v[2 * i + 1] = __uint_as_float(w[i] & 0xffff0000u);
    }
    static DEVICE void store(bf16 *p, const float (&v)[8]) {
        *(uint4 *)p = make_uint4(narrow_pair(v[0], v[1]), narrow_pair(v[2], v[3]), narrow_pair(v[4], v[5]),
                                 narrow_pair(v[6], v[7]));
    }
};

template <typename T, int V> DEVICE typename Lanes<T, V>::Raw fetch(const T *p) {
    return *(const typename Lanes<T, V>::Raw *)p;
}
template <typename T, int V> DEVICE void load(const T *p, float (&v)[V]) { Lanes<T, V>::widen_all(fetch<T, V>(p), v); }

#define VARIANT(name, suffix, type, lanes, bounds, params, args)                                 \
    namespace name##_in_##suffix {                                                               \
        typedef type T;                                                                          \
        extern "C" __global__ void bounds name##_##suffix params { name##_body<T, lanes> args; } \
    }
#define VARIANTS(name, bounds, params, args)          \
    VARIANT(name, f1, float, 1, bounds, params, args) \
    VARIANT(name, f8, float, 8, bounds, params, args) \
    VARIANT(name, b1, bf16, 1, bounds, params, args)  \
    VARIANT(name, b8, bf16, 8, bounds, params, args)
#define EXPORT(name, params, args) VARIANTS(name, , params, args)
// Blocks of 256 threads, of which three shall fit a multiprocessor.
#define EXPORT_THREE(name, params, args) VARIANTS(name, __launch_bounds__(256, 3), params, args)

// A thread's column (the first of its V channels); blocks are (columns, rows).
#define COLUMN ((blockIdx.x * blockDim.x + threadIdx.x) * V)
#define LANES _Pragma("unroll") for (int i = 0; i < V; i++)

// Calls use(row, fetch(row)) for a thread's share of the rows. `AHEAD` are fetched before the first is used: memory
// answers after hundreds of cycles, and a store in `use` would keep the compiler from fetching past it. DOWN begins
// with the last row: what a kernel before wrote last is still in the cache.
template <int AHEAD = 4, bool DOWN = false, typename Fetch, typename Use>
DEVICE void each_row(u64 rows, Fetch fetch, Use use) {
    u64 row = blockIdx.y * blockDim.y + threadIdx.y, step = (u64)gridDim.y * blockDim.y;
    auto at = [&](int k) { return DOWN ? rows - 1 - (row + k * step) : row + k * step; };
    decltype(fetch(row)) raw[AHEAD];
    for (; row + (AHEAD - 1) * step < rows; row += AHEAD * step) {
#pragma unroll
        for (int k = 0; k < AHEAD; k++) raw[k] = fetch(at(k));
#pragma unroll
        for (int k = 0; k < AHEAD; k++) use(at(k), raw[k]);
    }
#pragma unroll
    for (int k = 0; k < AHEAD - 1; k++)
        if (row + k * step < rows) raw[k] = fetch(at(k));
#pragma unroll
    for (int k = 0; k < AHEAD - 1; k++)
        if (row + k * step < rows) use(at(k), raw[k]);
}

// What is fetched where two arrays are read.
template <typename R> struct Two {
    R x, y;
};

// relu that keeps NaN visible.
DEVICE float relu(float x) { return x < 0.f ? 0.f : x; }

// Sums `value[V]` over the rows of a block, a power of two of them; the first row's threads receive the result.
// `shared` holds V floats for every thread of the block.
template <int V> DEVICE void sum_rows_of_block(float (&value)[V], float *shared) {
    u32 threads = blockDim.x * blockDim.y, thread = threadIdx.y * blockDim.x + threadIdx.x;
    LANES shared[i * threads + thread] = value[i];
    __syncthreads();
    for (u32 half = blockDim.y / 2; half; half /= 2) {
        if (threadIdx.y < half) LANES shared[i * threads + thread] += shared[i * threads + thread + half * blockDim.x];
        __syncthreads();
    }
    if (threadIdx.y == 0) LANES value[i] = shared[i * threads + thread];
    __syncthreads();
}

// Sum over a block of one dimension (a multiple of 32 threads); every thread receives it.
template <typename F> DEVICE F sum_block(F value) {
    __shared__ F parts[32];
    for (int lane = 16; lane; lane >>= 1) value += __shfl_xor_sync(~0u, value, lane);
    __syncthreads();
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
    __syncthreads();
    F total = 0;
    for (u32 warp = 0; warp < blockDim.x / 32; warp++) total += parts[warp];
    return total;
}

DEVICE float max_block(float value) {
    __shared__ float parts[32];
    for (int lane = 16; lane; lane >>= 1) value = fmaxf(value, __shfl_xor_sync(~0u, value, lane));
    __syncthreads();
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
    __syncthreads();
    float best = parts[0];
    for (u32 warp = 1; warp < blockDim.x / 32; warp++) best = fmaxf(best, parts[warp]);
    return best;
}
