// Kernels that reduce over the positions of an item, or spread one value per channel and item over them. A block looks
// at 32·V channels of one item (blockIdx.y) with eight strips of positions. Values per item are vectors: always f32.

#define ITEM_ROWS(row, n) \
    for (u64 row = (u64)blockIdx.y * (n) + threadIdx.y, end = ((u64)blockIdx.y + 1) * (n); row < end; row += blockDim.y)

template <typename T, int V> DEVICE void mean_body(const T *x, u32 sx, u32 n, float *mean, u32 sm, u32 channels) {
    extern __shared__ float shared[];
    u32 c = COLUMN;
    float sum[V] = {};
    if (c < channels)
        ITEM_ROWS(row, n) {
            float v[V];
            load<T, V>(x + row * sx + c, v);
            LANES sum[i] += v[i];
        }
    sum_rows_of_block<V>(sum, shared);
    if (c < channels && threadIdx.y == 0) LANES mean[(u64)blockIdx.y * sm + c + i] = sum[i] / n;
}
EXPORT(mean, (const T *x, u32 sx, u32 n, float *mean, u32 sm, u32 channels), (x, sx, n, mean, sm, channels))

// y = residual + gate · x
template <typename T, int V>
DEVICE void gate_body(const T *x, u32 sx, const float *gate, u32 sg, const T *residual, u32 sr, T *y, u32 sy, u32 n,
                      u32 channels) {
    u32 c = COLUMN;
    if (c >= channels) return;
    float g[V];
    LANES g[i] = gate[(u64)blockIdx.y * sg + c + i];
    ITEM_ROWS(row, n) {
        float v[V], r[V];
        load<T, V>(x + row * sx + c, v);
        load<T, V>(residual + row * sr + c, r);
        LANES v[i] = fmaf(g[i], v[i], r[i]);
        Lanes<T, V>::store(y + row * sy + c, v);
    }
}
EXPORT(gate,
       (const T *x, u32 sx, const float *gate, u32 sg, const T *residual, u32 sr, T *y, u32 sy, u32 n, u32 channels),
       (x, sx, gate, sg, residual, sr, y, sy, n, channels))

// dgate = Σ x · dy
template <typename T, int V>
DEVICE void gate_backward_gate_body(const T *x, u32 sx, const T *dy, u32 sd, float *dgate, u32 sg, u32 n,
                                    u32 channels) {
    extern __shared__ float shared[];
    u32 c = COLUMN;
    float sum[V] = {};
    if (c < channels)
        ITEM_ROWS(row, n) {
            float v[V], d[V];
            load<T, V>(x + row * sx + c, v);
            load<T, V>(dy + row * sd + c, d);
            LANES sum[i] += v[i] * d[i];
        }
    sum_rows_of_block<V>(sum, shared);
    if (c < channels && threadIdx.y == 0) LANES dgate[(u64)blockIdx.y * sg + c + i] = sum[i];
}
EXPORT(gate_backward_gate, (const T *x, u32 sx, const T *dy, u32 sd, float *dgate, u32 sg, u32 n, u32 channels),
       (x, sx, dy, sd, dgate, sg, n, channels))

// dx = gate · dy + dmean / n
template <typename T, int V>
DEVICE void gate_backward_input_body(const float *gate, u32 sg, const float *dmean, u32 sm, const T *dy, u32 sd, T *dx,
                                     u32 sx, u32 n, u32 channels) {
    u32 c = COLUMN;
    if (c >= channels) return;
    float g[V], share[V];
    LANES g[i] = gate[(u64)blockIdx.y * sg + c + i], share[i] = dmean[(u64)blockIdx.y * sm + c + i] / n;
    ITEM_ROWS(row, n) {
        float d[V];
        load<T, V>(dy + row * sd + c, d);
        LANES d[i] = fmaf(g[i], d[i], share[i]);
        Lanes<T, V>::store(dx + row * sx + c, d);
    }
}
EXPORT(gate_backward_input,
       (const float *gate, u32 sg, const float *dmean, u32 sm, const T *dy, u32 sd, T *dx, u32 sx, u32 n, u32 channels),
       (gate, sg, dmean, sm, dy, sd, dx, sx, n, channels))

// Where the mean of (item, height) row group `group` and channel c goes in a vector of 2 · channels · height; its
// deviation follows `half` later.
DEVICE u64 moment_slot(u32 group, u32 height, u32 stride, u32 c) {
    return (u64)(group / height) * stride + c * height + group % height;
}

// Mean and √(unbiased variance + ε), or floored √max(biased variance, ε), over the width.
template <typename T, int V>
DEVICE void moments_body(const T *x, u32 sx, u32 n, u32 height, float epsilon, int floored, float *stats, u32 ss,
                         u32 channels) {
    extern __shared__ float shared[];
    __shared__ float means[32 * V];
    u32 c = COLUMN;
    bool inside = c < channels;
    float sum[V] = {};
    if (inside)
        ITEM_ROWS(row, n) {
            float v[V];
            load<T, V>(x + row * sx + c, v);
            LANES sum[i] += v[i];
        }
    sum_rows_of_block<V>(sum, shared);
    if (threadIdx.y == 0) LANES means[threadIdx.x * V + i] = sum[i] / n;
    __syncthreads();
    float mean[V], square[V] = {};
    LANES mean[i] = means[threadIdx.x * V + i];
    if (inside)
        ITEM_ROWS(row, n) {
            float v[V];
            load<T, V>(x + row * sx + c, v);
            LANES square[i] += (v[i] - mean[i]) * (v[i] - mean[i]);
        }
    sum_rows_of_block<V>(square, shared);
    if (inside && threadIdx.y == 0) LANES {
            u64 slot = moment_slot(blockIdx.y, height, ss, c + i);
            stats[slot] = mean[i];
            // one frame has no variance; PyTorch gives NaN there, we give none
            float variance = floored ? square[i] / n : square[i] / (n > 1 ? n - 1 : 1) + epsilon;
            stats[slot + (u64)channels * height] = sqrtf(floored && variance < epsilon ? epsilon : variance);
        }
}
EXPORT(moments,
       (const T *x, u32 sx, u32 n, u32 height, float epsilon, int floored, float *stats, u32 ss, u32 channels),
       (x, sx, n, height, epsilon, floored, stats, ss, channels))

// dx = dμ/n + dσ · (x − μ) / ((n − 1) · σ), floored n in place of n − 1. `through_relu`: x is what a ReLU let pass, and
// the gradient before it is asked for.
template <typename T, int V>
DEVICE void moments_backward_body(const T *x, u32 sx, const float *stats, u32 ss, const float *dstats, u32 sd,
                                  float epsilon, int floored, int add, int through_relu, T *dx, u32 st, u32 n,
                                  u32 height, u32 channels) {
    u32 c = COLUMN;
    if (c >= channels) return;
    float mean[V], share[V], slope[V];
    u64 half = (u64)channels * height;
    LANES {
        u64 slot = moment_slot(blockIdx.y, height, ss, c + i), dslot = moment_slot(blockIdx.y, height, sd, c + i);
        mean[i] = stats[slot];
        share[i] = dstats[dslot] / n;
        float deviation = stats[slot + half];
        float least = floored ? sqrtf(epsilon) : 0.f, divisor = floored ? n : n > 1 ? n - 1 : 1;
        slope[i] = deviation > least ? dstats[dslot + half] / (divisor * deviation) : 0.f;
    }
    ITEM_ROWS(row, n) {
        float v[V], d[V] = {};
        load<T, V>(x + row * sx + c, v);
        if (add) load<T, V>(dx + row * st + c, d);
        LANES d[i] += share[i] + slope[i] * (v[i] - mean[i]);
        if (through_relu) LANES d[i] = v[i] > 0.f ? d[i] : 0.f;
        Lanes<T, V>::store(dx + row * st + c, d);
    }
}
EXPORT(moments_backward,
       (const T *x, u32 sx, const float *stats, u32 ss, const float *dstats, u32 sd, float epsilon, int floored,
        int add, int through_relu, T *dx, u32 st, u32 n, u32 height, u32 channels),
       (x, sx, stats, ss, dstats, sd, epsilon, floored, add, through_relu, dx, st, n, height, channels))

// h += context
template <typename T, int V>
DEVICE void context_add_body(const float *context, u32 sc, T *h, u32 sh, u32 n, u32 channels) {
    u32 c = COLUMN;
    if (c >= channels) return;
    float add[V];
    LANES add[i] = context[(u64)blockIdx.y * sc + c + i];
    ITEM_ROWS(row, n) {
        float v[V];
        load<T, V>(h + row * sh + c, v);
        LANES v[i] += add[i];
        Lanes<T, V>::store(h + row * sh + c, v);
    }
}
EXPORT(context_add, (const float *context, u32 sc, T *h, u32 sh, u32 n, u32 channels),
       (context, sc, h, sh, n, channels))

// dcontext = Σ dh
template <typename T, int V>
DEVICE void context_add_backward_body(const T *dh, u32 sd, float *dcontext, u32 sc, u32 n, u32 channels) {
    extern __shared__ float shared[];
    u32 c = COLUMN;
    float sum[V] = {};
    if (c < channels)
        ITEM_ROWS(row, n) {
            float v[V];
            load<T, V>(dh + row * sd + c, v);
            LANES sum[i] += v[i];
        }
    sum_rows_of_block<V>(sum, shared);
    if (c < channels && threadIdx.y == 0) LANES dcontext[(u64)blockIdx.y * sc + c + i] = sum[i];
}
EXPORT(context_add_backward, (const T *dh, u32 sd, float *dcontext, u32 sc, u32 n, u32 channels),
       (dh, sd, dcontext, sc, n, channels))

// h = tanh(h + context)
template <typename T, int V>
DEVICE void context_tanh_body(const float *context, u32 sc, T *h, u32 sh, u32 n, u32 channels) {
    u32 c = COLUMN;
    if (c >= channels) return;
    float add[V] = {};
    if (context) LANES add[i] = context[(u64)blockIdx.y * sc + c + i];
    ITEM_ROWS(row, n) {
        float v[V];
        load<T, V>(h + row * sh + c, v);
        LANES v[i] = tanhf(v[i] + add[i]);
        Lanes<T, V>::store(h + row * sh + c, v);
    }
}
EXPORT(context_tanh, (const float *context, u32 sc, T *h, u32 sh, u32 n, u32 channels),
       (context, sc, h, sh, n, channels))

// d = (1 − a²) · d, dcontext = Σ d
template <typename T, int V>
DEVICE void context_tanh_backward_body(const T *a, u32 sa, T *d, u32 sd, float *dcontext, u32 sc, u32 n, u32 channels) {
    extern __shared__ float shared[];
    u32 c = COLUMN;
    float sum[V] = {};
    if (c < channels)
        ITEM_ROWS(row, n) {
            float v[V], g[V];
            load<T, V>(a + row * sa + c, v);
            load<T, V>(d + row * sd + c, g);
            LANES {
                g[i] *= 1.f - v[i] * v[i];
                sum[i] += g[i];
            }
            Lanes<T, V>::store(d + row * sd + c, g);
        }
    sum_rows_of_block<V>(sum, shared);
    if (dcontext && c < channels && threadIdx.y == 0) LANES dcontext[(u64)blockIdx.y * sc + c + i] = sum[i];
}
EXPORT(context_tanh_backward, (const T *a, u32 sa, T *d, u32 sd, float *dcontext, u32 sc, u32 n, u32 channels),
       (a, sa, d, sd, dcontext, sc, n, channels))

// A softmax on its way: largest logit so far, and Σe, Σe·x, Σe·x² relative to it.
struct Attended {
    float largest, total, first, second;
    DEVICE void join(const Attended &other) {
        float top = fmaxf(largest, other.largest);
        if (top == -INFINITY) return;
        float mine = __expf(largest - top), theirs = __expf(other.largest - top);
        total = total * mine + other.total * theirs;
        first = first * mine + other.first * theirs;
        second = second * mine + other.second * theirs;
        largest = top;
    }
};

// α = softmax(logits) over the positions, in place; with u = x − x₀, where x₀ is the first row so that a constant has
// no variance, μ = x₀ + Σαu, σ = √max(Σαu² − (Σαu)², ε).
template <typename T, int V>
DEVICE void attentive_body(const T *x, u32 sx, T *attention, u32 sa, float epsilon, float *stats, u32 ss, u32 n,
                           u32 channels) {
    extern __shared__ float shared[];
    Attended *strips = (Attended *)shared;
    u32 c = COLUMN, slot = threadIdx.x * V;
    bool inside = c < channels;
    Attended state[V];
    LANES state[i] = {-INFINITY, 0.f, 0.f, 0.f};
    float origin[V] = {};
    if (inside) load<T, V>(x + (u64)blockIdx.y * n * sx + c, origin);
    if (inside)
        ITEM_ROWS(row, n) {
            float v[V], a[V];
            load<T, V>(x + row * sx + c, v);
            load<T, V>(attention + row * sa + c, a);
            LANES {
                Attended &s = state[i];
                if (a[i] > s.largest) {
                    float shrink = __expf(s.largest - a[i]);
                    s.total *= shrink, s.first *= shrink, s.second *= shrink;
                    s.largest = a[i];
                }
                float e = __expf(a[i] - s.largest), u = v[i] - origin[i];
                s.total += e, s.first += e * u, s.second += e * u * u;
            }
        }
    LANES strips[threadIdx.y * blockDim.x * V + slot + i] = state[i];
    __syncthreads();
    LANES {
        state[i] = strips[slot + i];
        for (u32 y = 1; y < blockDim.y; y++) state[i].join(strips[y * blockDim.x * V + slot + i]);
    }
    if (!inside) return;
    if (threadIdx.y == 0) LANES {
            float mean = state[i].first / state[i].total, variance = state[i].second / state[i].total - mean * mean;
            u64 at = (u64)blockIdx.y * ss + c + i;
            stats[at] = origin[i] + mean;
            stats[at + channels] = sqrtf(variance < epsilon ? epsilon : variance);
        }
    ITEM_ROWS(row, n) {
        float a[V];
        load<T, V>(attention + row * sa + c, a);
        LANES a[i] = __expf(a[i] - state[i].largest) / state[i].total;
        Lanes<T, V>::store(attention + row * sa + c, a);
    }
}
EXPORT(attentive,
       (const T *x, u32 sx, T *attention, u32 sa, float epsilon, float *stats, u32 ss, u32 n, u32 channels),
       (x, sx, attention, sa, epsilon, stats, ss, n, channels))

// With v = dσ/2σ (0 where σ is at its floor) and z = x − μ: dlogits = α(dμ·z + v(z² − σ²)), dx = α(dμ + 2v·z).
template <typename T, int V>
DEVICE void attentive_backward_body(const T *x, u32 sx, const T *attention, u32 sa, const float *stats, u32 ss,
                                    const float *dstats, u32 sd, float epsilon, T *dlogits, u32 sl, T *dx, u32 st,
                                    u32 n, u32 channels) {
    u32 c = COLUMN;
    if (c >= channels) return;
    float mean[V], variance[V], u[V], v[V];
    LANES {
        u64 at = (u64)blockIdx.y * ss + c + i, dat = (u64)blockIdx.y * sd + c + i;
        float deviation = stats[at + channels];
        mean[i] = stats[at], variance[i] = deviation * deviation, u[i] = dstats[dat];
        v[i] = deviation > sqrtf(epsilon) ? dstats[dat + channels] / (2.f * deviation) : 0.f;
    }
    ITEM_ROWS(row, n) {
        float w[V], a[V], logit[V];
        load<T, V>(x + row * sx + c, w);
        load<T, V>(attention + row * sa + c, a);
        LANES {
            float z = w[i] - mean[i];
            logit[i] = a[i] * (u[i] * z + v[i] * (z * z - variance[i]));
            w[i] = a[i] * (u[i] + 2.f * v[i] * z);
        }
        Lanes<T, V>::store(dlogits + row * sl + c, logit);
        Lanes<T, V>::store(dx + row * st + c, w);
    }
}
EXPORT(attentive_backward,
       (const T *x, u32 sx, const T *attention, u32 sa, const float *stats, u32 ss, const float *dstats, u32 sd,
        float epsilon, T *dlogits, u32 sl, T *dx, u32 st, u32 n, u32 channels),
       (x, sx, attention, sa, stats, ss, dstats, sd, epsilon, dlogits, sl, dx, st, n, channels))
