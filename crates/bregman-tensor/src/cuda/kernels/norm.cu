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
        Lanes<T, V>::load(x + c, first);
        if (order == BEFORE) LANES first[i] = relu(first[i]);
        EACH_ROW(row, rows) {
            float v[V];
            Lanes<T, V>::load(x + row * sx + c, v);
            LANES {
                float u = (order == BEFORE ? relu(v[i]) : v[i]) - first[i];
                sum[i] += u;
                square[i] += u * u;
            }
        }
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

DEVICE void join_parts(const float *parts, u32 chunks, u32 channels, u32 c, double &first, double &second) {
    __shared__ double shared[2][STRIPS][32];
    first = second = 0;
    if (c < channels) {
        for (u32 chunk = threadIdx.y; chunk < chunks; chunk += STRIPS) {
            first += parts[2ull * chunk * channels + c];
            second += parts[(2ull * chunk + 1) * channels + c];
        }
    }
    shared[0][threadIdx.y][threadIdx.x] = first, shared[1][threadIdx.y][threadIdx.x] = second;
    __syncthreads();
    if (threadIdx.y) return;
    first = second = 0;
    for (int y = 0; y < STRIPS; y++) first += shared[0][y][threadIdx.x], second += shared[1][y][threadIdx.x];
}

// Statistics of the batch, the running ones moved, and y = scale·u + shift as coefficients[2][channels].
template <typename T, int V>
DEVICE void norm_statistics_body(const float *parts, u32 chunks, const T *x, u64 rows, u32 channels, int order, const float *gamma,
                                 const float *beta, float *mean, float *inverse_std, float *running_mean, float *running_variance,
                                 float *coefficients) {
    u32 c = blockIdx.x * 32 + threadIdx.x;
    double sum, square;
    join_parts(parts, chunks, channels, c, sum, square);
    if (c >= channels || threadIdx.y) return;
    float first = widen(x[c]);
    if (order == BEFORE) first = relu(first);
    double shifted = sum / rows, variance = fmax(square / rows - shifted * shifted, 0.0);
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
    Lanes<float, V>::load(coefficients + c, scale);
    LANES shift[i] = coefficients[channels + c + i];
    EACH_ROW(row, rows) {
        float v[V];
        Lanes<T, V>::load(x + row * sx + c, v);
        if (order == BEFORE) LANES v[i] = relu(v[i]);
        LANES v[i] = fmaf(v[i], scale[i], shift[i]);
        if (residual) {
            float r[V];
            Lanes<T, V>::load(residual + row * sr + c, r);
            LANES v[i] += r[i];
        }
        if (order == AFTER) LANES v[i] = relu(v[i]);
        Lanes<T, V>::store(y + row * sy + c, v);
    }
}
EXPORT(norm_apply,
       (const T *x, u32 sx, const float *coefficients, int order, const T *residual, u32 sr, T *y, u32 sy, u64 rows, u32 channels),
       (x, sx, coefficients, order, residual, sr, y, sy, rows, channels))

// The numbers of each channel.
struct Affine {
    const float *gamma, *beta, *mean, *inverse_std;
};

// g = dy where the last ReLU let y pass. Without a residual, y is not read but computed again, as it was.
template <typename T, int V> struct LastRelu {
    float scale[V], shift[V];
    DEVICE LastRelu(Affine n, u32 c) {
        LANES scale[i] = n.gamma[c + i] * n.inverse_std[c + i], shift[i] = fmaf(-scale[i], n.mean[c + i], n.beta[c + i]);
    }
    DEVICE void mask(const float (&x)[V], const T *y, float (&g)[V]) {
        if (y) {
            float out[V];
            Lanes<T, V>::load(y, out);
            LANES g[i] = out[i] > 0.f ? g[i] : 0.f;
        } else {
            LANES g[i] = fmaf(x[i], scale[i], shift[i]) > 0.f ? g[i] : 0.f;
        }
    }
};

// parts[chunk][2][channels]: Σg and Σg·(u − μ), g being dy behind the last ReLU.
template <typename T, int V>
DEVICE void norm_backward_sums_body(const T *x, u32 sx, const T *y, u32 sy, const T *d, u32 sd, Affine norm, int order, u64 rows,
                                    u32 channels, float *parts) {
    extern __shared__ float shared[];
    u32 c = COLUMN;
    bool inside = c < channels;
    float sum[V] = {}, along[V] = {};
    if (inside) {
        float mu[V];
        Lanes<float, V>::load(norm.mean + c, mu);
        LastRelu<T, V> last(norm, c);
        EACH_ROW(row, rows) {
            float u[V], g[V];
            Lanes<T, V>::load(x + row * sx + c, u);
            Lanes<T, V>::load(d + row * sd + c, g);
            if (order == AFTER) last.mask(u, y ? y + row * sy + c : y, g);
            if (order == BEFORE) LANES u[i] = relu(u[i]);
            LANES {
                sum[i] += g[i];
                along[i] += g[i] * (u[i] - mu[i]);
            }
        }
    }
    sum_rows_of_block<V>(sum, shared);
    sum_rows_of_block<V>(along, shared);
    if (inside && threadIdx.y == 0) {
        float *part = parts + 2ull * blockIdx.y * channels;
        LANES part[c + i] = sum[i], part[channels + c + i] = along[i];
    }
}
EXPORT(norm_backward_sums,
       (const T *x, u32 sx, const T *y, u32 sy, const T *d, u32 sd, Affine norm, int order, u64 rows, u32 channels, float *parts),
       (x, sx, y, sy, d, sd, norm, order, rows, channels, parts))

// dγ, dβ, and dx = a·g + b·u + c as coefficients[3][channels].
extern "C" __global__ void norm_backward_join(const float *parts, u32 chunks, u64 rows, u32 channels, const float *gamma,
                                              const float *mean, const float *inverse_std, float *dgamma, float *dbeta,
                                              float *coefficients) {
    u32 c = blockIdx.x * 32 + threadIdx.x;
    double sum, along;
    join_parts(parts, chunks, channels, c, sum, along);
    if (c >= channels || threadIdx.y) return;
    float inverse = inverse_std[c], a = gamma[c] * inverse;
    dgamma[c] = (float)along * inverse;
    dbeta[c] = (float)sum;
    float b = -a * inverse * inverse * (float)(along / rows);
    coefficients[c] = a;
    coefficients[channels + c] = b;
    coefficients[2 * channels + c] = -a * (float)(sum / rows) - b * mean[c];
}

// d: dy in, dx out; the residual's share on the way.
template <typename T, int V>
DEVICE void norm_backward_apply_body(const T *x, u32 sx, const T *y, u32 sy, T *d, u32 sd, T *dresidual, u32 sr, Affine norm,
                                     const float *coefficients, int order, u64 rows, u32 channels) {
    u32 col = COLUMN;
    if (col >= channels) return;
    float a[V], b[V], c[V];
    LANES a[i] = coefficients[col + i], b[i] = coefficients[channels + col + i], c[i] = coefficients[2 * channels + col + i];
    LastRelu<T, V> last(norm, col);
    EACH_ROW(row, rows) {
        float u[V], g[V];
        Lanes<T, V>::load(x + row * sx + col, u);
        Lanes<T, V>::load(d + row * sd + col, g);
        if (order == AFTER) last.mask(u, y ? y + row * sy + col : y, g);
        if (dresidual) Lanes<T, V>::store(dresidual + row * sr + col, g);
        LANES {
            float dx = a[i] * g[i] + b[i] * u[i] + c[i];
            g[i] = order == BEFORE && !(u[i] > 0.f) ? 0.f : dx;
        }
        Lanes<T, V>::store(d + row * sd + col, g);
    }
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
        EACH_ROW(row, rows) {
            float v[V];
            Lanes<T, V>::load(x + row * sx + c, v);
            LANES sum[i] += v[i];
        }
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
