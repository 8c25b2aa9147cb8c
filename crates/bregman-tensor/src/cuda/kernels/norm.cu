// Batch norm fused with ReLU, in both directions: column sums in parts (so that their order, and the result, never
// changes), the parts joined per channel, then one pass that applies the result. The formulas are those of cpu/norm.rs.

enum Relu { ABSENT = 0, BEFORE = 1, AFTER = 2 };

#define EPSILON 1e-5f
#define MOMENTUM 0.1f

// parts[chunk][2][channels]: Σ(u − k) and Σ(u − k)² with k = u of the first row, which keeps the variance from
// cancelling. With a bias, that is added to x on the way; k is `origin` then, since the first row changes.
template <typename T, int V, bool BIAS>
DEVICE void norm_sums_in(T *x, u32 sx, u64 rows, u32 channels, int order, const float *bias, const float *origin,
                         float *parts) {
    extern __shared__ float shared[];
    u32 c = COLUMN;
    bool inside = c < channels;
    float first[V], more[V] = {}, sum[V] = {}, square[V] = {};
    if (inside) {
        if (BIAS) {
            load<float, V>(bias + c, more);
            load<float, V>(origin + c, first);
        } else load<T, V>(x + c, first);
        if (order == BEFORE) LANES first[i] = relu(first[i]);
        typedef typename Lanes<T, V>::Raw Raw;
        each_row(
            rows, [=](u64 row) { return fetch<T, V>(x + row * sx + c); },
            [&](u64 row, Raw raw) {
                float v[V];
                Lanes<T, V>::widen_all(raw, v);
                if (BIAS) {
                    LANES v[i] = widen(narrow<T>(v[i] + more[i]));
                    Lanes<T, V>::store(x + row * sx + c, v);
                }
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
template <typename T, int V>
DEVICE void norm_sums_body(const T *x, u32 sx, u64 rows, u32 channels, int order, float *parts) {
    norm_sums_in<T, V, false>((T *)x, sx, rows, channels, order, 0, 0, parts);
}
EXPORT(norm_sums, (const T *x, u32 sx, u64 rows, u32 channels, int order, float *parts),
       (x, sx, rows, channels, order, parts))

template <typename T, int V>
DEVICE void norm_sums_of_bias_body(T *x, u32 sx, u64 rows, u32 channels, int order, const float *bias,
                                   const float *origin, float *parts) {
    norm_sums_in<T, V, true>(x, sx, rows, channels, order, bias, origin, parts);
}
EXPORT_THREE(norm_sums_of_bias,
             (T *x, u32 sx, u64 rows, u32 channels, int order, const float *bias, const float *origin, float *parts),
             (x, sx, rows, channels, order, bias, origin, parts))

// Chunks are joined by blocks of 32 channels and so many strips of chunks.
#define STRIPS 32

// The sums of every kind over all chunks. A warp reads 32 channels of a strip; the strips of a channel are then summed
// up by a warp: `c` becomes its channel, and the first lane is told whether there is one.
template <int KINDS>
DEVICE bool join_parts(const float *parts, u32 chunks, u32 channels, u32 &c, double (&sums)[KINDS]) {
    __shared__ double shared[KINDS][STRIPS][33]; // 33: lanes in different banks
    u32 column = blockIdx.x * 32 + threadIdx.x;
#pragma unroll
    for (int kind = 0; kind < KINDS; kind++) sums[kind] = 0;
    if (column < channels) {
#pragma unroll 8
        for (u32 chunk = threadIdx.y; chunk < chunks; chunk += STRIPS)
#pragma unroll
            for (int kind = 0; kind < KINDS; kind++)
                sums[kind] += parts[((u64)chunk * KINDS + kind) * channels + column];
    }
#pragma unroll
    for (int kind = 0; kind < KINDS; kind++) shared[kind][threadIdx.y][threadIdx.x] = sums[kind];
    __syncthreads();
#pragma unroll
    for (int kind = 0; kind < KINDS; kind++) {
        sums[kind] = shared[kind][threadIdx.x][threadIdx.y];
        for (int lane = 16; lane; lane /= 2) sums[kind] += __shfl_xor_sync(~0u, sums[kind], lane);
    }
    c = blockIdx.x * 32 + threadIdx.y;
    return c < channels && threadIdx.x == 0;
}

// Statistics of the batch, the running ones moved, and y = scale·u + shift as coefficients[2][channels]. Sums are
// relative to the first row of x, or without x to the running mean.
template <typename T, int V>
DEVICE void norm_statistics_body(const float *parts, u32 chunks, const T *x, u64 rows, u32 channels, int order,
                                 const float *gamma, const float *beta, float *mean, float *inverse_std,
                                 float *running_mean, float *running_variance, float *coefficients) {
    u32 c;
    double sums[2];
    if (!join_parts(parts, chunks, channels, c, sums)) return;
    float first = x ? widen(x[c]) : running_mean[c];
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
       (const float *parts, u32 chunks, const T *x, u64 rows, u32 channels, int order, const float *gamma,
        const float *beta, float *mean, float *inverse_std, float *running_mean, float *running_variance,
        float *coefficients),
       (parts, chunks, x, rows, channels, order, gamma, beta, mean, inverse_std, running_mean, running_variance,
        coefficients))

// coefficients from the running statistics.
extern "C" __global__ void norm_running(u32 channels, const float *gamma, const float *beta, const float *mean,
                                        const float *variance, float *coefficients) {
    u32 c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= channels) return;
    float scale = gamma[c] / sqrtf(variance[c] + EPSILON);
    coefficients[c] = scale;
    coefficients[channels + c] = fmaf(-scale, mean[c], beta[c]);
}

// y = scale·u + shift, with the ReLU and the residual where they belong.
template <typename T, int V>
DEVICE void norm_apply_body(const T *x, u32 sx, const float *coefficients, int order, const T *residual, u32 sr, T *y,
                            u32 sy, u64 rows, u32 channels) {
    u32 c = COLUMN;
    if (c >= channels) return;
    float scale[V], shift[V];
    load<float, V>(coefficients + c, scale);
    LANES shift[i] = coefficients[channels + c + i];
    typedef Two<typename Lanes<T, V>::Raw> Raw;
    each_row<4, true>(
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
       (const T *x, u32 sx, const float *coefficients, int order, const T *residual, u32 sr, T *y, u32 sy, u64 rows,
        u32 channels),
       (x, sx, coefficients, order, residual, sr, y, sy, rows, channels))

// The numbers of each channel.
struct Affine {
    const float *gamma, *beta, *mean, *inverse_std;
};

// g = dy where the last ReLU let y pass. Without a residual, y is not read but computed again, as it was.
template <typename T, int V, int ORDER> struct LastRelu {
    float scale[V], shift[V];
    DEVICE LastRelu(Affine n, u32 c) {
        if (ORDER == AFTER)
            LANES scale[i] = n.gamma[c + i] * n.inverse_std[c + i],
                  shift[i] = fmaf(-scale[i], n.mean[c + i], n.beta[c + i]);
    }
    DEVICE void mask(const float (&x)[V], float (&g)[V]) const {
        if (ORDER == AFTER) LANES g[i] = fmaf(x[i], scale[i], shift[i]) > 0.f ? g[i] : 0.f;
    }
};

// A row of x and dy.
template <typename T, int V> struct Gradients {
    const T *x, *d;
    u32 sx, sd;
    DEVICE Two<typename Lanes<T, V>::Raw> operator()(u64 row) const {
        return {fetch<T, V>(x + row * sx), fetch<T, V>(d + row * sd)};
    }
};

// A norm's sums on their way: Σg and Σg·(u − μ), g being dy behind the last ReLU; then Σg and the count of what the
// first ReLU let pass, from which Σdx follows.
template <int V> struct BackwardSums {
    float sum[V] = {}, along[V] = {}, passed[V] = {}, count[V] = {};
    DEVICE void add(const float (&u)[V], const float (&g)[V], const float (&mu)[V]) {
        LANES {
            sum[i] += g[i];
            along[i] += g[i] * (u[i] - mu[i]);
        }
    }
    DEVICE void add_passed(const float (&x)[V], const float (&g)[V]) {
        LANES {
            passed[i] += x[i] > 0.f ? g[i] : 0.f;
            count[i] += x[i] > 0.f ? 1.f : 0.f;
        }
    }
    // parts[chunk][4][channels]
    DEVICE void store(float *parts, u32 channels, u32 c, bool with_passed, float *shared) {
        sum_rows_of_block<V>(sum, shared);
        sum_rows_of_block<V>(along, shared);
        if (with_passed) {
            sum_rows_of_block<V>(passed, shared);
            sum_rows_of_block<V>(count, shared);
        }
        if (c >= channels || threadIdx.y) return;
        float *part = parts + 4ull * blockIdx.y * channels + c;
        LANES part[i] = sum[i], part[channels + i] = along[i], part[2 * channels + i] = passed[i],
              part[3 * channels + i] = count[i];
    }
};

template <typename T, int V, int ORDER>
DEVICE void norm_backward_sums_in(const T *x, u32 sx, const T *d, u32 sd, Affine norm, u64 rows, u32 channels,
                                  float *parts) {
    extern __shared__ float shared[];
    u32 c = COLUMN;
    BackwardSums<V> sums;
    if (c < channels) {
        float mu[V];
        load<float, V>(norm.mean + c, mu);
        LastRelu<T, V, ORDER> last(norm, c);
        each_row<2>(rows, Gradients<T, V>{x + c, d + c, sx, sd}, [&](u64, Two<typename Lanes<T, V>::Raw> raw) {
            float u[V], g[V];
            Lanes<T, V>::widen_all(raw.x, u);
            Lanes<T, V>::widen_all(raw.y, g);
            last.mask(u, g);
            if (ORDER == BEFORE) {
                sums.add_passed(u, g);
                LANES u[i] = relu(u[i]);
            }
            sums.add(u, g, mu);
        });
    }
    sums.store(parts, channels, c, ORDER == BEFORE, shared);
}

// Each order on its own needs fewer registers than all at once, and more threads fit.
#define IN_ORDER(name, ...)                                \
    order == BEFORE      ? name<T, V, BEFORE>(__VA_ARGS__) \
        : order == AFTER ? name<T, V, AFTER>(__VA_ARGS__)  \
                         : name<T, V, ABSENT>(__VA_ARGS__)

template <typename T, int V>
DEVICE void norm_backward_sums_body(const T *x, u32 sx, const T *d, u32 sd, Affine norm, int order, u64 rows,
                                    u32 channels, float *parts) {
    IN_ORDER(norm_backward_sums_in, x, sx, d, sd, norm, rows, channels, parts);
}
EXPORT_THREE(norm_backward_sums,
             (const T *x, u32 sx, const T *d, u32 sd, Affine norm, int order, u64 rows, u32 channels, float *parts),
             (x, sx, d, sd, norm, order, rows, channels, parts))

// With a residual: y says what the last ReLU let pass, and what passed is the residual's gradient, from which the rest
// follows without y.
template <typename T, int V>
DEVICE void norm_backward_residual_body(const T *x, u32 sx, const T *y, u32 sy, const T *d, u32 sd, T *dresidual,
                                        u32 sr, Affine norm, u64 rows, u32 channels, float *parts) {
    typedef typename Lanes<T, V>::Raw Raw;
    struct Three {
        Raw x, y, d;
    };
    extern __shared__ float shared[];
    u32 c = COLUMN;
    BackwardSums<V> sums;
    if (c < channels) {
        float mu[V];
        load<float, V>(norm.mean + c, mu);
        each_row<2>(
            rows,
            [=](u64 row) {
                return Three{fetch<T, V>(x + row * sx + c), fetch<T, V>(y + row * sy + c),
                             fetch<T, V>(d + row * sd + c)};
            },
            [&](u64 row, Three raw) {
                float u[V], out[V], g[V];
                Lanes<T, V>::widen_all(raw.x, u);
                Lanes<T, V>::widen_all(raw.y, out);
                Lanes<T, V>::widen_all(raw.d, g);
                LANES g[i] = out[i] > 0.f ? g[i] : 0.f;
                Lanes<T, V>::store(dresidual + row * sr + c, g);
                sums.add(u, g, mu);
            });
    }
    sums.store(parts, channels, c, false, shared);
}
EXPORT_THREE(norm_backward_residual,
             (const T *x, u32 sx, const T *y, u32 sy, const T *d, u32 sd, T *dresidual, u32 sr, Affine norm, u64 rows,
              u32 channels, float *parts),
             (x, sx, y, sy, d, sd, dresidual, sr, norm, rows, channels, parts))

// dγ, dβ, Σdx where it is asked for, and dx = a·g + b·u + c as coefficients[3][channels].
extern "C" __global__ void norm_backward_join(const float *parts, u32 chunks, u64 rows, u32 channels,
                                              const float *gamma, const float *mean, const float *inverse_std,
                                              int order, int fixed, float *dgamma, float *dbeta, float *dsum,
                                              float *coefficients) {
    u32 channel;
    double sums[4];
    if (!join_parts(parts, chunks, channels, channel, sums)) return;
    double sum = sums[0], along = sums[1], passed = sums[2], count = sums[3];
    float inverse = inverse_std[channel], a = gamma[channel] * inverse;
    dgamma[channel] = (float)along * inverse;
    dbeta[channel] = (float)sum;
    float b = fixed ? 0.f : -a * inverse * inverse * (float)(along / rows);
    float c = fixed ? 0.f : -a * (float)(sum / rows) - b * mean[channel];
    coefficients[channel] = a;
    coefficients[channels + channel] = b;
    coefficients[2 * channels + channel] = c;
    // Σu over what passed is Σu over all, since the rest is 0; without a first ReLU dx adds up to 0 where the batch's
    // own statistics are taken
    if (dsum)
        dsum[channel] = order == BEFORE ? (float)(a * passed + (double)b * rows * mean[channel] + c * count)
                        : fixed         ? (float)(a * sum)
                                        : 0.f;
}

// dx from dy, which may be the same memory.
template <typename T, int V, int ORDER>
DEVICE void norm_backward_apply_in(const T *x, u32 sx, const T *dy, u32 sy, T *dx, u32 sd, Affine norm,
                                   const float *coefficients, u64 rows, u32 channels) {
    u32 col = COLUMN;
    if (col >= channels) return;
    float a[V], b[V], c[V];
    LANES a[i] = coefficients[col + i], b[i] = coefficients[channels + col + i],
          c[i] = coefficients[2 * channels + col + i];
    LastRelu<T, V, ORDER> last(norm, col);
    Gradients<T, V> fetch{x + col, dy + col, sx, sy};
    each_row<2, true>(rows, fetch, [&](u64 row, Two<typename Lanes<T, V>::Raw> raw) {
        float u[V], g[V];
        Lanes<T, V>::widen_all(raw.x, u);
        Lanes<T, V>::widen_all(raw.y, g);
        last.mask(u, g);
        LANES {
            float moved = a[i] * g[i] + b[i] * u[i] + c[i];
            g[i] = ORDER == BEFORE && !(u[i] > 0.f) ? 0.f : moved;
        }
        Lanes<T, V>::store(dx + row * sd + col, g);
    });
}

template <typename T, int V>
DEVICE void norm_backward_apply_body(const T *x, u32 sx, const T *dy, u32 sy, T *dx, u32 sd, Affine norm,
                                     const float *coefficients, int order, u64 rows, u32 channels) {
    IN_ORDER(norm_backward_apply_in, x, sx, dy, sy, dx, sd, norm, coefficients, rows, channels);
}
EXPORT(norm_backward_apply,
       (const T *x, u32 sx, const T *dy, u32 sy, T *dx, u32 sd, Affine norm, const float *coefficients, int order,
        u64 rows, u32 channels),
       (x, sx, dy, sy, dx, sd, norm, coefficients, order, rows, channels))

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
    u32 c;
    double sum[1];
    if (join_parts(parts, chunks, channels, c, sum)) sums[c] = (float)sum[0];
}
