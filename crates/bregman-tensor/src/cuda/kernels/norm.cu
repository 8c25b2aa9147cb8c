// Batch norm fused with ReLU, in both directions: column sums in parts (so that their order, and the result, never changes), the parts
// joined per channel, then one pass that applies the result. The formulas are those of cpu/norm.rs.

enum Relu { ABSENT = 0, BEFORE = 1, AFTER = 2 };

#define EPSILON 1e-5f
#define MOMENTUM 0.1f

// parts[chunk][2][channels]: Σ(u − k) and Σ(u − k)² with k = u of the first row, which keeps the variance from cancelling.
template <typename T, int V> DEVICE void norm_sums_body(const T *x, u32 sx, u64 rows, u32 channels, int order, float *parts) {
    extern __shared__ float shared[];
    u32 c = COLUMN;
    bool inside = c < channels;
    float first[V], sum[V] = {}, square[V] = {};
    if (inside) {
        load<T, V>(x + c, first);
        if (order == BEFORE) LANES first[i] = relu(first[i]);
        typedef typename Lanes<T, V>::Raw Raw;
        each_row(
            rows, [=](u64 row) { return fetch<T, V>(x + row * sx + c); },
            [&](u64, Raw raw) {
                float v[V];
                Lanes<T, V>::widen_all(raw, v);
                LANES {
                    float u = (order == BEFORE ? relu(v[i]) : v[i]) - first[i];
                    sum[i] += u;
                    square[i] += u * u;
                }
            });
    }
    sum_rows_of_block<V>(sum, shared);
    sum_rows_of_block<V>(square, shared);
    if (inside && threadIdx.y == 0) {
        float *part = parts + 2ull * blockIdx.y * channels;
        LANES part[c + i] = sum[i], part[channels + c + i] = square[i];
    }
}
EXPORT(norm_sums, (const T *x, u32 sx, u64 rows, u32 channels, int order, float *parts), (x, sx, rows, channels, order, parts))

// Chunks are joined by blocks of 32 channels and so many strips of chunks.
#define STRIPS 32

// The sums of every kind over all chunks, for the threads of the first strip.
template <int KINDS> DEVICE void join_parts(const float *parts, u32 chunks, u32 channels, u32 c, double (&sums)[KINDS]) {
    __shared__ double shared[KINDS][STRIPS][32];
#pragma unroll
    for (int kind = 0; kind < KINDS; kind++) sums[kind] = 0;
    if (c < channels) {
        for (u32 chunk = threadIdx.y; chunk < chunks; chunk += STRIPS)
#pragma unroll
            for (int kind = 0; kind < KINDS; kind++) sums[kind] += parts[((u64)chunk * KINDS + kind) * channels + c];
    }
#pragma unroll
    for (int kind = 0; kind < KINDS; kind++) shared[kind][threadIdx.y][threadIdx.x] = sums[kind];
    __syncthreads();
    if (threadIdx.y) return;
#pragma unroll
    for (int kind = 0; kind < KINDS; kind++)
        for (int y = 1; y < STRIPS; y++) sums[kind] += shared[kind][y][threadIdx.x];
}

// Statistics of the batch, the running ones moved, and y = scale·u + shift as coefficients[2][channels].
template <typename T, int V>
DEVICE void norm_statistics_body(const float *parts, u32 chunks, const T *x, u64 rows, u32 channels, int order, const float *gamma,
                                 const float *beta, float *mean, float *inverse_std, float *running_mean, float *running_variance,
                                 float *coefficients) {
    u32 c = blockIdx.x * 32 + threadIdx.x;
    double sums[2];
    join_parts(parts, chunks, channels, c, sums);
    if (c >= channels || threadIdx.y) return;
    float first = widen(x[c]);
    if (order == BEFORE) first = relu(first);
    double shifted = sums[0] / rows, variance = fmax(sums[1] / rows - shifted * shifted, 0.0);
    float average = (float)(first + shifted), inverse = (float)(1.0 / sqrt(variance + EPSILON));
    mean[c] = average;
    inverse_std[c] = inverse;
    running_mean[c] += MOMENTUM * (average - running_mean[c]);
    running_variance[c] += MOMENTUM * ((float)(variance * rows / (rows > 1 ? rows - 1 : 1)) - running_variance[c]);
    float scale = gamma[c] * inverse;
    coefficients[c] = scale;
    coefficients[channels + c] = fmaf(-scale, average, beta[c]);
}
EXPORT(norm_statistics,
       (const float *parts, u32 chunks, const T *x, u64 rows, u32 channels, int order, const float *gamma, const float *beta, float *mean,
        float *inverse_std, float *running_mean, float *running_variance, float *coefficients),
       (parts, chunks, x, rows, channels, order, gamma, beta, mean, inverse_std, running_mean, running_variance, coefficients))

// coefficients from the running statistics.
extern "C" __global__ void norm_running(u32 channels, const float *gamma, const float *beta, const float *mean, const float *variance,
                                        float *coefficients) {
    u32 c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= channels) return;
    float scale = gamma[c] / sqrtf(variance[c] + EPSILON);
    coefficients[c] = scale;
    coefficients[channels + c] = fmaf(-scale, mean[c], beta[c]);
}

// y = scale·u + shift, with the ReLU and the residual where they belong.
template <typename T, int V>
DEVICE void norm_apply_body(const T *x, u32 sx, const float *coefficients, int order, const T *residual, u32 sr, T *y, u32 sy, u64 rows,
                            u32 channels) {
    u32 c = COLUMN;
    if (c >= channels) return;
    float scale[V], shift[V];
    load<float, V>(coefficients + c, scale);
    LANES shift[i] = coefficients[channels + c + i];
    typedef Two<typename Lanes<T, V>::Raw> Raw;
    each_row(
        rows,
        [=](u64 row) {
            Raw raw;
            raw.x = fetch<T, V>(x + row * sx + c);
            if (residual) raw.y = fetch<T, V>(residual + row * sr + c);
            return raw;
        },
        [&](u64 row, Raw raw) {
            float v[V];
            Lanes<T, V>::widen_all(raw.x, v);
            if (order == BEFORE) LANES v[i] = relu(v[i]);
            LANES v[i] = fmaf(v[i], scale[i], shift[i]);
            if (residual) {
                float r[V];
                Lanes<T, V>::widen_all(raw.y, r);
                LANES v[i] += r[i];
            }
            if (order == AFTER) LANES v[i] = relu(v[i]);
            Lanes<T, V>::store(y + row * sy + c, v);
        });
}
EXPORT(norm_apply,
       (const T *x, u32 sx, const float *coefficients, int order, const T *residual, u32 sr, T *y, u32 sy, u64 rows, u32 channels),
       (x, sx, coefficients, order, residual, sr, y, sy, rows, channels))

// The numbers of each channel.
struct Affine {
    const float *gamma, *beta, *mean, *inverse_std;
};

// A row of x, dy and, where the last ReLU's result cannot be computed again because a residual went in, y.
template <typename T, int V> struct Gradient {
    typename Lanes<T, V>::Raw x, d, y;
};

template <typename T, int V> struct GradientRows {
    const T *x, *y, *d;
    u32 sx, sy, sd;
    DEVICE Gradient<T, V> operator()(u64 row) const {
        Gradient<T, V> raw;
        raw.x = fetch<T, V>(x + row * sx);
        raw.d = fetch<T, V>(d + row * sd);
        if (y) raw.y = fetch<T, V>(y + row * sy);
        return raw;
    }
};

// g = dy where the last ReLU let y pass. Without a residual, y is not read but computed again, as it was.
template <typename T, int V, int ORDER> struct LastRelu {
    float scale[V], shift[V];
    bool stored;
    DEVICE LastRelu(Affine n, u32 c, const T *y) : stored(y) {
        if (ORDER == AFTER && !stored)
            LANES scale[i] = n.gamma[c + i] * n.inverse_std[c + i], shift[i] = fmaf(-scale[i], n.mean[c + i], n.beta[c + i]);
    }
    DEVICE void mask(const Gradient<T, V> &raw, const float (&x)[V], float (&g)[V]) const {
        if (ORDER != AFTER) return;
        if (stored) {
            float out[V];
            Lanes<T, V>::widen_all(raw.y, out);
            LANES g[i] = out[i] > 0.f ? g[i] : 0.f;
        } else {
            LANES g[i] = fmaf(x[i], scale[i], shift[i]) > 0.f ? g[i] : 0.f;
        }
    }
};

// parts[chunk][4][channels]: Σg and Σg·(u − μ), g being dy behind the last ReLU; then Σg and the count of what the first ReLU let pass, from
// which Σdx follows.
template <typename T, int V, int ORDER>
DEVICE void norm_backward_sums_in(const T *x, u32 sx, const T *y, u32 sy, const T *d, u32 sd, Affine norm, u64 rows, u32 channels,
                                  float *parts) {
    extern __shared__ float shared[];
    u32 c = COLUMN;
    bool inside = c < channels;
    float sum[V] = {}, along[V] = {}, passed[V] = {}, count[V] = {};
    if (inside) {
        float mu[V];
        load<float, V>(norm.mean + c, mu);
        LastRelu<T, V, ORDER> last(norm, c, y);
        each_row<2>(rows, GradientRows<T, V>{x + c, y ? y + c : y, d + c, sx, sy, sd}, [&](u64, Gradient<T, V> raw) {
            float u[V], g[V];
            Lanes<T, V>::widen_all(raw.x, u);
            Lanes<T, V>::widen_all(raw.d, g);
            last.mask(raw, u, g);
            if (ORDER == BEFORE) {
                LANES {
                    bool passes = u[i] > 0.f;
                    u[i] = relu(u[i]);
                    passed[i] += passes ? g[i] : 0.f;
                    count[i] += passes ? 1.f : 0.f;
                }
            }
            LANES {
                sum[i] += g[i];
                along[i] += g[i] * (u[i] - mu[i]);
            }
        });
    }
    sum_rows_of_block<V>(sum, shared);
    sum_rows_of_block<V>(along, shared);
    if (ORDER == BEFORE) {
        sum_rows_of_block<V>(passed, shared);
        sum_rows_of_block<V>(count, shared);
    }
    if (inside && threadIdx.y == 0) {
        float *part = parts + 4ull * blockIdx.y * channels + c;
        LANES part[i] = sum[i], part[channels + i] = along[i];
        LANES part[2 * channels + i] = passed[i], part[3 * channels + i] = count[i];
    }
}

// Each order on its own needs fewer registers than all at once, and more threads fit.
#define IN_ORDER(name, ...)                                                                                                            \
    order == BEFORE ? name<T, V, BEFORE>(__VA_ARGS__) : order == AFTER ? name<T, V, AFTER>(__VA_ARGS__) : name<T, V, ABSENT>(__VA_ARGS__)

template <typename T, int V>
DEVICE void norm_backward_sums_body(const T *x, u32 sx, const T *y, u32 sy, const T *d, u32 sd, Affine norm, int order, u64 rows,
                                    u32 channels, float *parts) {
    IN_ORDER(norm_backward_sums_in, x, sx, y, sy, d, sd, norm, rows, channels, parts);
}
EXPORT_THREE(norm_backward_sums,
       (const T *x, u32 sx, const T *y, u32 sy, const T *d, u32 sd, Affine norm, int order, u64 rows, u32 channels, float *parts),
       (x, sx, y, sy, d, sd, norm, order, rows, channels, parts))

// dγ, dβ, Σdx where it is asked for, and dx = a·g + b·u + c as coefficients[3][channels].
extern "C" __global__ void norm_backward_join(const float *parts, u32 chunks, u64 rows, u32 channels, const float *gamma,
                                              const float *mean, const float *inverse_std, int order, float *dgamma, float *dbeta,
                                              float *dsum, float *coefficients) {
    u32 channel = blockIdx.x * 32 + threadIdx.x;
    double sums[4];
    join_parts(parts, chunks, channels, channel, sums);
    double sum = sums[0], along = sums[1], passed = sums[2], count = sums[3];
    if (channel >= channels || threadIdx.y) return;
    float inverse = inverse_std[channel], a = gamma[channel] * inverse;
    dgamma[channel] = (float)along * inverse;
    dbeta[channel] = (float)sum;
    float b = -a * inverse * inverse * (float)(along / rows);
    float c = -a * (float)(sum / rows) - b * mean[channel];
    coefficients[channel] = a;
    coefficients[channels + channel] = b;
    coefficients[2 * channels + channel] = c;
    // Σu over what passed is Σu over all, since the rest is 0; without a first ReLU a norm's dx always adds up to 0
    if (dsum) dsum[channel] = order == BEFORE ? (float)(a * passed + (double)b * rows * mean[channel] + c * count) : 0.f;
}

// d: dy in, dx out; the residual's share on the way.
template <typename T, int V, int ORDER>
DEVICE void norm_backward_apply_in(const T *x, u32 sx, const T *y, u32 sy, T *d, u32 sd, T *dresidual, u32 sr, Affine norm,
                                   const float *coefficients, u64 rows, u32 channels) {
    u32 col = COLUMN;
    if (col >= channels) return;
    float a[V], b[V], c[V];
    LANES a[i] = coefficients[col + i], b[i] = coefficients[channels + col + i], c[i] = coefficients[2 * channels + col + i];
    LastRelu<T, V, ORDER> last(norm, col, y);
    each_row(rows, GradientRows<T, V>{x + col, y ? y + col : y, d + col, sx, sy, sd}, [&](u64 row, Gradient<T, V> raw) {
        float u[V], g[V];
        Lanes<T, V>::widen_all(raw.x, u);
        Lanes<T, V>::widen_all(raw.d, g);
        last.mask(raw, u, g);
        if (dresidual) Lanes<T, V>::store(dresidual + row * sr + col, g);
        LANES {
            float dx = a[i] * g[i] + b[i] * u[i] + c[i];
            g[i] = ORDER == BEFORE && !(u[i] > 0.f) ? 0.f : dx;
        }
        Lanes<T, V>::store(d + row * sd + col, g);
    });
}

template <typename T, int V>
DEVICE void norm_backward_apply_body(const T *x, u32 sx, const T *y, u32 sy, T *d, u32 sd, T *dresidual, u32 sr, Affine norm,
                                     const float *coefficients, int order, u64 rows, u32 channels) {
    IN_ORDER(norm_backward_apply_in, x, sx, y, sy, d, sd, dresidual, sr, norm, coefficients, rows, channels);
}
EXPORT(norm_backward_apply,
       (const T *x, u32 sx, const T *y, u32 sy, T *d, u32 sd, T *dresidual, u32 sr, Affine norm, const float *coefficients, int order,
        u64 rows, u32 channels),
       (x, sx, y, sy, d, sd, dresidual, sr, norm, coefficients, order, rows, channels))

// Column sums for the gradient of a bias: parts as above, the second half unused.
template <typename T, int V> DEVICE void column_sums_body(const T *x, u32 sx, u64 rows, u32 channels, float *parts) {
    extern __shared__ float shared[];
    u32 c = COLUMN;
    bool inside = c < channels;
    float sum[V] = {};
    if (inside) {
        typedef typename Lanes<T, V>::Raw Raw;
        each_row(
            rows, [=](u64 row) { return fetch<T, V>(x + row * sx + c); },
            [&](u64, Raw raw) {
                float v[V];
                Lanes<T, V>::widen_all(raw, v);
                LANES sum[i] += v[i];
            });
    }
    sum_rows_of_block<V>(sum, shared);
    if (inside && threadIdx.y == 0) LANES parts[(u64)blockIdx.y * channels + c + i] = sum[i];
}
EXPORT(column_sums, (const T *x, u32 sx, u64 rows, u32 channels, float *parts), (x, sx, rows, channels, parts))

extern "C" __global__ void column_join(const float *parts, u32 chunks, u32 channels, float *sums) {
    __shared__ double shared[STRIPS][32];
    u32 c = blockIdx.x * 32 + threadIdx.x;
    double sum = 0;
    if (c < channels)
        for (u32 chunk = threadIdx.y; chunk < chunks; chunk += STRIPS) sum += parts[(u64)chunk * channels + c];
    shared[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (c >= channels || threadIdx.y) return;
    for (int y = 1; y < STRIPS; y++) sum += shared[y][threadIdx.x];
    sums[c] = (float)sum;
}
