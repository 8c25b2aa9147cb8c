// Convolutions with several taps as matrix products: their input laid out tap by tap, and back. And the weights in that
// order.

struct Geometry {
    // input and output extent; taps, stride, padding, dilation, each [height, width]
    u32 in[2], out[2], kernel[2], stride[2], padding[2], dilation[2];
};

// columns[row][tap][channel] of the output positions `first_row …`
template <typename T, int V>
DEVICE void gather_body(Geometry g, const T *x, u32 sx, T *columns, u64 first_row, u64 rows, u32 channels) {
    u32 taps = g.kernel[0] * g.kernel[1], groups = channels / V;
    u64 count = rows * taps * groups;
    for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < count; i += (u64)gridDim.x * blockDim.x) {
        u32 c = i % groups * V, tap = i / groups % taps;
        u64 row = i / groups / taps, position = first_row + row;
        u32 ow = position % g.out[1], oh = position / g.out[1] % g.out[0], item = position / g.out[1] / g.out[0];
        u32 h = oh * g.stride[0] + tap / g.kernel[1] * g.dilation[0] - g.padding[0];
        u32 w = ow * g.stride[1] + tap % g.kernel[1] * g.dilation[1] - g.padding[1];
        float v[V] = {};
        if (h < g.in[0] && w < g.in[1]) load<T, V>(x + (((u64)item * g.in[0] + h) * g.in[1] + w) * sx + c, v);
        Lanes<T, V>::store(columns + (row * taps + tap) * channels + c, v);
    }
}
EXPORT(gather, (Geometry g, const T *x, u32 sx, T *columns, u64 first_row, u64 rows, u32 channels),
       (g, x, sx, columns, first_row, rows, channels))

// dx[position] = Σ of the columns that came from it; columns begin at item `first_item`
template <typename T, int V>
DEVICE void scatter_body(Geometry g, const T *columns, T *dx, u32 sx, int add, u32 first_item, u64 positions,
                         u32 channels) {
    u32 taps = g.kernel[0] * g.kernel[1], groups = channels / V;
    u64 count = positions * groups;
    for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < count; i += (u64)gridDim.x * blockDim.x) {
        u32 c = i % groups * V;
        u64 position = i / groups;
        u32 w = position % g.in[1], h = position / g.in[1] % g.in[0], item = position / g.in[1] / g.in[0];
        T *to = dx + ((((u64)first_item + item) * g.in[0] + h) * g.in[1] + w) * sx + c;
        float sum[V] = {};
        if (add) load<T, V>(to, sum);
        for (u32 tap = 0; tap < taps; tap++) {
            u32 fh = h + g.padding[0] - tap / g.kernel[1] * g.dilation[0],
                fw = w + g.padding[1] - tap % g.kernel[1] * g.dilation[1];
            u32 oh = fh / g.stride[0], ow = fw / g.stride[1];
            if (fh % g.stride[0] || fw % g.stride[1] || oh >= g.out[0] || ow >= g.out[1]) continue;
            float v[V];
            load<T, V>(columns + ((((u64)item * g.out[0] + oh) * g.out[1] + ow) * taps + tap) * channels + c, v);
            LANES sum[i] += v[i];
        }
        Lanes<T, V>::store(to, sum);
    }
}
EXPORT(scatter, (Geometry g, const T *columns, T *dx, u32 sx, int add, u32 first_item, u64 positions, u32 channels),
       (g, columns, dx, sx, add, first_item, positions, channels))

// dx += the rows of `share` where a strided convolution with a single tap read x.
template <typename T, int V>
DEVICE void add_strided_body(Geometry g, const T *share, T *dx, u32 sx, u64 rows, u32 channels) {
    u32 groups = channels / V;
    for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < rows * groups; i += (u64)gridDim.x * blockDim.x) {
        u32 c = i % groups * V;
        u64 row = i / groups;
        u32 w = row % g.out[1] * g.stride[1], h = row / g.out[1] % g.out[0] * g.stride[0];
        T *to = dx + ((row / g.out[1] / g.out[0] * g.in[0] + h) * g.in[1] + w) * sx + c;
        float sum[V], v[V];
        load<T, V>(to, sum);
        load<T, V>(share + row * channels + c, v);
        LANES sum[i] += v[i];
        Lanes<T, V>::store(to, sum);
    }
}
EXPORT(add_strided, (Geometry g, const T *share, T *dx, u32 sx, u64 rows, u32 channels),
       (g, share, dx, sx, rows, channels))

// Columns `first …` of a weight matrix, [rows, channels, taps] in f32 → [rows, taps, channels] in T.
template <typename T, int V>
DEVICE void pack_weight_body(const float *from, u32 stride, u32 first, T *to, u32 rows, u32 channels, u32 taps) {
    u64 count = (u64)rows * channels * taps;
    for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < count; i += (u64)gridDim.x * blockDim.x) {
        u32 c = i % channels, tap = i / channels % taps, row = i / channels / taps;
        to[i] = narrow<T>(from[(u64)row * stride + first + c * taps + tap]);
    }
}
EXPORT(pack_weight, (const float *from, u32 stride, u32 first, T *to, u32 rows, u32 channels, u32 taps),
       (from, stride, first, to, rows, channels, taps))

// And back, for a gradient.
template <typename T, int V>
DEVICE void unpack_weight_body(const T *from, float *to, u32 stride, u32 first, u32 rows, u32 channels, u32 taps) {
    u64 count = (u64)rows * channels * taps;
    for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < count; i += (u64)gridDim.x * blockDim.x) {
        u32 tap = i % taps, c = i / taps % channels, row = i / taps / channels;
        to[(u64)row * stride + first + c * taps + tap] = widen(from[((u64)row * taps + tap) * channels + c]);
    }
}
EXPORT(unpack_weight, (const T *from, float *to, u32 stride, u32 first, u32 rows, u32 channels, u32 taps),
       (from, to, stride, first, rows, channels, taps))
