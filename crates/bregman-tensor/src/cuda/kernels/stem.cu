// A 3×3 convolution of one channel, stride 1: where a network on spectrograms begins. Nine products per output are too
// few for tensor cores and no burden for the others; it must only go over the output once.
//
// A thread has eight outputs of some rows of a column, and reads all that it needs of them before it begins. Blocks are
// (outputs / 8, columns).
namespace stem {

constexpr int ROWS = 8, THREADS = 128;

// Calls `work(position, rows, window)` for all columns of rows of this thread: its first position, how many rows there
// are, their inputs with those around them.
template <typename Work> DEVICE void over_columns(const bf16 *x, u32 sx, Planes p, Work work) {
    u32 strips = (p.height + ROWS - 1) / ROWS, units = p.items * strips * p.width;
    for (u32 unit = blockIdx.x * blockDim.y + threadIdx.y; unit < units; unit += gridDim.x * blockDim.y) {
        u32 column = unit % p.width, above = unit / p.width % strips * ROWS, rows = min(ROWS, p.height - above);
        u64 position = ((u64)(unit / p.width / strips) * p.height + above) * p.width + column;
        const bf16 *from = x + position * sx;
        float window[ROWS + 2][3];
#pragma unroll
        for (int i = 0; i < ROWS + 2; i++)
#pragma unroll
            for (int j = 0; j < 3; j++) {
                bool inside = above + i - 1 < p.height && column + j - 1 < p.width; // those before the first are huge
                window[i][j] = inside ? widen(from[((long long)(i - 1) * p.width + j - 1) * sx]) : 0.f;
            }
        work(position, rows, window);
    }
}

} // namespace stem

// y = w ∗ x, or y += w ∗ x; w is [out, tap]. SUMS: also parts[block][2][outputs] for the norm behind the layer, see
// `ChannelSums`; blocks have a power of two of columns then.
template <bool SUMS>
DEVICE void stem_forward_in(const bf16 *x, u32 sx, const bf16 *w, bf16 *y, u32 sy, int add, Planes planes,
                            const float *shift, float *parts) {
    extern __shared__ float shared[];
    u32 out = threadIdx.x * 8;
    float weight[TAPS][8], k[8], sum[8] = {}, square[8] = {};
#pragma unroll
    for (int tap = 0; tap < TAPS; tap++)
#pragma unroll
        for (int i = 0; i < 8; i++) weight[tap][i] = widen(w[(out + i) * TAPS + tap]);
    if (SUMS) load<float, 8>(shift + out, k);
    stem::over_columns(x, sx, planes, [&](u64 position, u32 rows, const float(&window)[stem::ROWS + 2][3]) {
#pragma unroll
        for (int row = 0; row < stem::ROWS; row++) {
            if (row >= rows) break;
            bf16 *to = y + (position + (u64)row * planes.width) * sy + out;
            float v[8] = {};
            if (add) load<bf16, 8>(to, v);
#pragma unroll
            for (int tap = 0; tap < TAPS; tap++)
#pragma unroll
                for (int i = 0; i < 8; i++) v[i] = fmaf(weight[tap][i], window[row + tap / 3][tap % 3], v[i]);
            Lanes<bf16, 8>::store(to, v);
            if (SUMS)
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    float u = widen(narrow<bf16>(v[i])) - k[i];
                    sum[i] += u, square[i] += u * u;
                }
        }
    });
    if (!SUMS) return;
    sum_rows_of_block<8>(sum, shared);
    sum_rows_of_block<8>(square, shared);
    if (threadIdx.y) return;
    u32 outputs = blockDim.x * 8;
    float *part = parts + 2ull * blockIdx.x * outputs + out;
#pragma unroll
    for (int i = 0; i < 8; i++) part[i] = sum[i], part[outputs + i] = square[i];
}

extern "C" __global__ void __launch_bounds__(stem::THREADS, 3)
    stem_forward(const bf16 *x, u32 sx, const bf16 *w, bf16 *y, u32 sy, int add, Planes planes) {
    stem_forward_in<false>(x, sx, w, y, sy, add, planes, 0, 0);
}

extern "C" __global__ void __launch_bounds__(stem::THREADS, 3)
    stem_sums(const bf16 *x, u32 sx, const bf16 *w, bf16 *y, u32 sy, Planes planes, const float *shift, float *parts) {
    stem_forward_in<true>(x, sx, w, y, sy, 0, planes, shift, parts);
}

// dw = dy ∗ x in parts [block, out, tap], which `narrow_join` adds. Blocks have a power of two of columns.
extern "C" __global__ void __launch_bounds__(stem::THREADS, 3)
    stem_weight(const bf16 *x, u32 sx, const bf16 *dy, u32 sy, float *parts, Planes planes) {
    extern __shared__ float shared[];
    u32 out = threadIdx.x * 8;
    float sums[TAPS][8] = {};
    stem::over_columns(x, sx, planes, [&](u64 position, u32 rows, const float(&window)[stem::ROWS + 2][3]) {
        uint4 chunks[stem::ROWS];
#pragma unroll
        for (int row = 0; row < stem::ROWS; row++) {
            chunks[row] = make_uint4(0, 0, 0, 0);
            if (row < rows) chunks[row] = *(const uint4 *)(dy + (position + (u64)row * planes.width) * sy + out);
        }
#pragma unroll
        for (int row = 0; row < stem::ROWS; row++) {
            float d[8];
            load<bf16, 8>((const bf16 *)&chunks[row], d);
#pragma unroll
            for (int tap = 0; tap < TAPS; tap++)
#pragma unroll
                for (int i = 0; i < 8; i++) sums[tap][i] = fmaf(d[i], window[row + tap / 3][tap % 3], sums[tap][i]);
        }
    });
    float *part = parts + ((u64)blockIdx.x * blockDim.x * 8 + out) * TAPS;
#pragma unroll
    for (int tap = 0; tap < TAPS; tap++) {
        sum_rows_of_block<8>(sums[tap], shared);
        if (threadIdx.y == 0)
#pragma unroll
            for (int i = 0; i < 8; i++) part[i * TAPS + tap] = sums[tap][i];
    }
}
