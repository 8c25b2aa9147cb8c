// Kernels over values one by one.

template <typename T, int V, typename F>
DEVICE void each(const T *a, u32 sa, T *to, u32 st, u64 rows, u32 channels, F f) {
    u32 c = COLUMN;
    if (c >= channels) return;
    typedef typename Lanes<T, V>::Raw Raw;
    each_row(
        rows, [=](u64 row) { return fetch<T, V>(a + row * sa + c); },
        [=](u64 row, Raw raw) {
            float x[V];
            Lanes<T, V>::widen_all(raw, x);
            LANES x[i] = f(x[i]);
            Lanes<T, V>::store(to + row * st + c, x);
        });
}

template <typename T, int V, typename F>
DEVICE void each2(const T *a, u32 sa, const T *b, u32 sb, T *to, u32 st, u64 rows, u32 channels, F f) {
    u32 c = COLUMN;
    if (c >= channels) return;
    typedef Two<typename Lanes<T, V>::Raw> Raw;
    each_row(
        rows, [=](u64 row) { return Raw{fetch<T, V>(a + row * sa + c), fetch<T, V>(b + row * sb + c)}; },
        [=](u64 row, Raw raw) {
            float x[V], y[V];
            Lanes<T, V>::widen_all(raw.x, x);
            Lanes<T, V>::widen_all(raw.y, y);
            LANES x[i] = f(x[i], y[i]);
            Lanes<T, V>::store(to + row * st + c, x);
        });
}

#define UNARY_PARAMS (const T *a, u32 sa, T *to, u32 st, u64 rows, u32 channels)
#define UNARY_ARGS (a, sa, to, st, rows, channels)
#define BINARY_PARAMS (const T *a, u32 sa, const T *b, u32 sb, T *to, u32 st, u64 rows, u32 channels)
#define BINARY_ARGS (a, sa, b, sb, to, st, rows, channels)

template <typename T, int V> DEVICE void copy_body UNARY_PARAMS {
    each<T, V>(a, sa, to, st, rows, channels, [](float x) { return x; });
}
EXPORT(copy, UNARY_PARAMS, UNARY_ARGS)

template <typename T, int V> DEVICE void relu_body UNARY_PARAMS { each<T, V>(a, sa, to, st, rows, channels, relu); }
EXPORT(relu, UNARY_PARAMS, UNARY_ARGS)

template <typename T, int V> DEVICE void sigmoid_body UNARY_PARAMS {
    each<T, V>(a, sa, to, st, rows, channels, [](float x) { return 1.f / (1.f + expf(-x)); });
}
EXPORT(sigmoid, UNARY_PARAMS, UNARY_ARGS)

template <typename T, int V> DEVICE void add_body BINARY_PARAMS {
    each2<T, V>(a, sa, b, sb, to, st, rows, channels, [](float x, float y) { return x + y; });
}
EXPORT(add, BINARY_PARAMS, BINARY_ARGS)

template <typename T, int V> DEVICE void relu_backward_body BINARY_PARAMS {
    each2<T, V>(a, sa, b, sb, to, st, rows, channels, [](float y, float d) { return y > 0.f ? d : 0.f; });
}
EXPORT(relu_backward, BINARY_PARAMS, BINARY_ARGS)

template <typename T, int V> DEVICE void sigmoid_backward_body BINARY_PARAMS {
    each2<T, V>(a, sa, b, sb, to, st, rows, channels, [](float y, float d) { return d * y * (1.f - y); });
}
EXPORT(sigmoid_backward, BINARY_PARAMS, BINARY_ARGS)

// [batch, channels, positions] in f32 ↔ [batch, positions, channels] in T: one thread per value, ordered by the
// channels-last side.
template <typename T, int V>
DEVICE void to_channels_last_body(const float *from, T *to, u32 stride, u32 channels, u32 positions, u64 count) {
    for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < count; i += (u64)gridDim.x * blockDim.x) {
        u64 row = i / channels;
        u32 c = i % channels, position = row % positions;
        to[row * stride + c] = narrow<T>(from[(row / positions * channels + c) * positions + position]);
    }
}
EXPORT(to_channels_last, (const float *from, T *to, u32 stride, u32 channels, u32 positions, u64 count),
       (from, to, stride, channels, positions, count))

template <typename T, int V>
DEVICE void from_channels_last_body(const T *from, u32 stride, float *to, u32 channels, u32 positions, u64 count) {
    for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < count; i += (u64)gridDim.x * blockDim.x) {
        u64 row = i / channels;
        u32 c = i % channels, position = row % positions;
        to[(row / positions * channels + c) * positions + position] = widen(from[row * stride + c]);
    }
}
EXPORT(from_channels_last, (const T *from, u32 stride, float *to, u32 channels, u32 positions, u64 count),
       (from, stride, to, channels, positions, count))

// f32 rows → rows of T, channel for channel.
template <typename T, int V>
DEVICE void convert_body(const float *from, u32 sf, T *to, u32 st, u64 rows, u32 channels) {
    u32 c = COLUMN;
    if (c >= channels) return;
    typedef typename Lanes<float, V>::Raw Raw;
    each_row(
        rows, [=](u64 row) { return fetch<float, V>(from + row * sf + c); },
        [=](u64 row, Raw raw) {
            float x[V];
            Lanes<float, V>::widen_all(raw, x);
            Lanes<T, V>::store(to + row * st + c, x);
        });
}
EXPORT(convert, (const float *from, u32 sf, T *to, u32 st, u64 rows, u32 channels), (from, sf, to, st, rows, channels))

// Counts values that are NaN or infinite.
template <typename T, int V> DEVICE void count_non_finite_body(const T *x, u32 sx, u64 rows, u32 channels, u32 *count) {
    u32 c = COLUMN, found = 0;
    if (c >= channels) return;
    typedef typename Lanes<T, V>::Raw Raw;
    each_row(
        rows, [=](u64 row) { return fetch<T, V>(x + row * sx + c); },
        [&](u64, Raw raw) {
            float v[V];
            Lanes<T, V>::widen_all(raw, v);
            LANES found += !(fabsf(v[i]) <= 3.4028234e38f);
        });
    if (found) atomicAdd(count, found);
}
EXPORT(count_non_finite, (const T *x, u32 sx, u64 rows, u32 channels, u32 *count), (x, sx, rows, channels, count))

template <typename T, int V> DEVICE void add_bias_body(const float *bias, T *y, u32 sy, u64 rows, u32 channels) {
    u32 c = COLUMN;
    if (c >= channels) return;
    float b[V];
    load<float, V>(bias + c, b);
    typedef typename Lanes<T, V>::Raw Raw;
    each_row(
        rows, [=](u64 row) { return fetch<T, V>(y + row * sy + c); },
        [&](u64 row, Raw raw) {
            float v[V];
            Lanes<T, V>::widen_all(raw, v);
            LANES v[i] += b[i];
            Lanes<T, V>::store(y + row * sy + c, v);
        });
}
EXPORT(add_bias, (const float *bias, T *y, u32 sy, u64 rows, u32 channels), (bias, y, sy, rows, channels))
