// Mirrored signals: an item has n rows, and `edge` more on each side where it is mirrored.

// y[t] = x[t − edge], mirrored at row 0 and at row n − 1 of each item
template <typename T, int V>
DEVICE void reflect_body(const T *x, u32 sx, T *y, u32 sy, u32 n, u32 edge, u64 rows, u32 channels) {
    u32 c = COLUMN;
    if (c >= channels) return;
    typedef typename Lanes<T, V>::Raw Raw;
    each_row(
        rows,
        [=](u64 row) {
            u32 wide = n + 2 * edge;
            int t = (int)(row % wide) - (int)edge, last = (int)n - 1;
            t = t < 0 ? -t : t > last ? 2 * last - t : t;
            return fetch<T, V>(x + (row / wide * n + t) * sx + c);
        },
        [=](u64 row, Raw raw) {
            float v[V];
            Lanes<T, V>::widen_all(raw, v);
            Lanes<T, V>::store(y + row * sy + c, v);
        });
}
EXPORT(reflect, (const T *x, u32 sx, T *y, u32 sy, u32 n, u32 edge, u64 rows, u32 channels),
       (x, sx, y, sy, n, edge, rows, channels))

// dx[t] = the sum of dy over the rows that showed t, or adds that
template <typename T, int V>
DEVICE void reflect_backward_body(const T *dy, u32 sd, T *dx, u32 sx, int add, u32 n, u32 edge, u64 rows,
                                  u32 channels) {
    u32 c = COLUMN;
    if (c >= channels) return;
    typedef typename Lanes<T, V>::Raw Raw;
    each_row(
        rows,
        [=](u64 row) { return fetch<T, V>(dy + (row / n * (n + 2 * edge) + edge + row % n) * sd + c); },
        [=](u64 row, Raw raw) {
            u32 t = row % n, back = n - 1 - t;
            const T *first = dy + row / n * (n + 2 * edge) * sd + c;
            float sum[V], v[V];
            Lanes<T, V>::widen_all(raw, sum);
            if (t > 0 && t <= edge) {
                load<T, V>(first + (u64)(edge - t) * sd, v);
                LANES sum[i] += v[i];
            }
            if (back > 0 && back <= edge) {
                load<T, V>(first + (u64)(edge + n - 1 + back) * sd, v);
                LANES sum[i] += v[i];
            }
            if (add) {
                load<T, V>(dx + row * sx + c, v);
                LANES sum[i] += v[i];
            }
            Lanes<T, V>::store(dx + row * sx + c, sum);
        });
}
EXPORT(reflect_backward,
       (const T *dy, u32 sd, T *dx, u32 sx, int add, u32 n, u32 edge, u64 rows, u32 channels),
       (dy, sd, dx, sx, add, n, edge, rows, channels))
