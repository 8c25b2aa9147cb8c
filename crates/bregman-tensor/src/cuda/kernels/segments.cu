// Segments of a signal: `length` rows of an item each, the last one of an item what is left. A block looks at 32·V
// channels of one segment (blockIdx.y) with eight strips of rows. Values per segment are vectors: always f32.

// Rows of segment number `index`: those of its item are [item, item + n), its own [first, end).
struct Segment {
    u64 item, first, end;
    DEVICE Segment(u32 index, u32 n, u32 length) {
        u32 segments = (n + length - 1) / length, number = index % segments;
        item = (u64)(index / segments) * n;
        first = item + (u64)number * length;
        end = number + 1 < segments ? first + length : item + n;
    }
};

#define SEGMENT_ROWS(row, segment) \
    for (u64 row = (segment).first + threadIdx.y; row < (segment).end; row += blockDim.y)

// context = mean of the item + mean of the segment
template <typename T, int V>
DEVICE void segment_context_body(const T *x, u32 sx, float *context, u32 sc, u32 n, u32 length, u32 channels) {
    extern __shared__ float shared[];
    Segment segment(blockIdx.y, n, length);
    u32 c = COLUMN;
    float inner = 1.f / (segment.end - segment.first), outer = 1.f / n, sum[V] = {};
    if (c < channels)
        for (u64 row = segment.item + threadIdx.y; row < segment.item + n; row += blockDim.y) {
            float v[V], weight = outer + (row >= segment.first && row < segment.end ? inner : 0.f);
            load<T, V>(x + row * sx + c, v);
            LANES sum[i] += weight * v[i];
        }
    sum_rows_of_block<V>(sum, shared);
    if (c < channels && threadIdx.y == 0) LANES context[(u64)blockIdx.y * sc + c + i] = sum[i];
}
EXPORT(segment_context, (const T *x, u32 sx, float *context, u32 sc, u32 n, u32 length, u32 channels),
       (x, sx, context, sc, n, length, channels))

// dx += dcontext of its segment / rows of it + sum of its item's dcontext / n
template <typename T, int V>
DEVICE void segment_context_backward_body(const float *dcontext, u32 sc, T *dx, u32 sx, u32 n, u32 length,
                                          u32 channels) {
    Segment segment(blockIdx.y, n, length);
    u32 c = COLUMN, segments = (n + length - 1) / length, first = blockIdx.y / segments * segments;
    if (c >= channels) return;
    float add[V] = {}, rows = segment.end - segment.first;
    for (u32 s = first; s < first + segments; s++) LANES add[i] += dcontext[(u64)s * sc + c + i];
    LANES add[i] = add[i] / n + dcontext[(u64)blockIdx.y * sc + c + i] / rows;
    SEGMENT_ROWS(row, segment) {
        float d[V];
        load<T, V>(dx + row * sx + c, d);
        LANES d[i] += add[i];
        Lanes<T, V>::store(dx + row * sx + c, d);
    }
}
EXPORT(segment_context_backward, (const float *dcontext, u32 sc, T *dx, u32 sx, u32 n, u32 length, u32 channels),
       (dcontext, sc, dx, sx, n, length, channels))

// y = gate of the segment · x
template <typename T, int V>
DEVICE void segment_gate_body(const T *x, u32 sx, const float *gate, u32 sg, T *y, u32 sy, u32 n, u32 length,
                              u32 channels) {
    Segment segment(blockIdx.y, n, length);
    u32 c = COLUMN;
    if (c >= channels) return;
    float g[V];
    LANES g[i] = gate[(u64)blockIdx.y * sg + c + i];
    SEGMENT_ROWS(row, segment) {
        float v[V];
        load<T, V>(x + row * sx + c, v);
        LANES v[i] *= g[i];
        Lanes<T, V>::store(y + row * sy + c, v);
    }
}
EXPORT(segment_gate,
       (const T *x, u32 sx, const float *gate, u32 sg, T *y, u32 sy, u32 n, u32 length, u32 channels),
       (x, sx, gate, sg, y, sy, n, length, channels))

// dgate = sum of x · dy over the segment, dx = gate · dy
template <typename T, int V>
DEVICE void segment_gate_backward_body(const T *x, u32 sx, const float *gate, u32 sg, const T *dy, u32 sd, float *dgate,
                                       u32 st, T *dx, u32 so, u32 n, u32 length, u32 channels) {
    extern __shared__ float shared[];
    Segment segment(blockIdx.y, n, length);
    u32 c = COLUMN;
    float g[V] = {}, sum[V] = {};
    if (c < channels) {
        LANES g[i] = gate[(u64)blockIdx.y * sg + c + i];
        SEGMENT_ROWS(row, segment) {
            float v[V], d[V];
            load<T, V>(x + row * sx + c, v);
            load<T, V>(dy + row * sd + c, d);
            LANES {
                sum[i] += v[i] * d[i];
                d[i] *= g[i];
            }
            Lanes<T, V>::store(dx + row * so + c, d);
        }
    }
    sum_rows_of_block<V>(sum, shared);
    if (c < channels && threadIdx.y == 0) LANES dgate[(u64)blockIdx.y * st + c + i] = sum[i];
}
EXPORT(segment_gate_backward,
       (const T *x, u32 sx, const float *gate, u32 sg, const T *dy, u32 sd, float *dgate, u32 st, T *dx, u32 so, u32 n,
        u32 length, u32 channels),
       (x, sx, gate, sg, dy, sd, dgate, st, dx, so, n, length, channels))
