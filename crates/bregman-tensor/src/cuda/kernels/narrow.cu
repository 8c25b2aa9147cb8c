// 3×3 convolutions, stride 1, of 32 or 64 channels to as many, bf16: too narrow for a library's tiles, so we cut our
// own.
//
// A block walks over tiles of positions. Of a tile it holds the positions and a border of one around them in shared
// memory, while the next tile is on its way. Every product is one of tensor cores, 16 positions of a row at a time,
// sums in f32. Eight channels of a position (16 bytes) are a chunk; chunks are shuffled within their position by its
// column, so that eight positions side by side lie in different banks.

struct Planes {
    u32 items, height, width;
};

// Where a tile begins.
struct Corner {
    u32 item, row, column;
};

#define TILE_WIDTH 32
#define TAPS 9

template <int ROWS> DEVICE u32 count_tiles(Planes p) {
    return p.items * ((p.height + ROWS - 1) / ROWS) * ((p.width + TILE_WIDTH - 1) / TILE_WIDTH);
}

// That of a tile after the last lies below a plane: nobody needs what is copied from there, and next to nothing is.
template <int ROWS> DEVICE Corner corner_of(Planes p, u32 tile) {
    if (tile >= count_tiles<ROWS>(p)) return {0, p.height, 0};
    u32 down = (p.height + ROWS - 1) / ROWS, across = (p.width + TILE_WIDTH - 1) / TILE_WIDTH;
    return {tile / across / down, tile / across % down * ROWS, tile % across * TILE_WIDTH};
}

template <int C> DEVICE u32 slot(u32 column, u32 chunk) { return chunk ^ (C == 32 ? column / 2 % 4 : column % 8); }

// Bytes of a tile in shared memory, and where a chunk of it lies. C = 32 needs an even WIDTH.
template <int C, int ROWS, int WIDTH> constexpr u32 TILE_BYTES = ROWS * WIDTH * C * 2;
template <int C, int WIDTH> DEVICE u32 chunk_at(u32 row, u32 column, u32 chunk) {
    return (row * WIDTH + column) * C * 2 + slot<C>(column, chunk) * 16;
}

// Starts to copy share `share` of a tile that begins at (row, column) of the plane of `item`: a chunk per thread. What
// lies outside is zero. A share is so many half rows of 16 columns, so that a thread's column is (nearly) always the
// same; the last has the border's columns.
template <int C, int ROWS, int WIDTH, int THREADS>
DEVICE void copy_share(u32 share, u32 to, const bf16 *x, u32 stride, Planes p, Corner at) {
    constexpr u32 HALF = 16 * C / 8, HALVES = THREADS / HALF, BODY = (ROWS * 2 + HALVES - 1) / HALVES;
    u32 chunk = threadIdx.x % (C / 8), column = threadIdx.x / (C / 8), row;
    if (share < BODY) {
        u32 half = share * HALVES + threadIdx.x / HALF;
        row = half / 2, column = half % 2 * 16 + column % 16;
    } else {
        row = column / 2, column = TILE_WIDTH + column % 2;
    }
    if (share + 1 >= BODY && row >= ROWS) return;
    // the origin may lie before the plane, where nothing is read
    const bf16 *origin = x + (((long long)at.item * p.height + (int)at.row) * p.width + (int)at.column) * stride;
    bool inside = at.row + row < p.height && at.column + column < p.width;
    copy_async(to + chunk_at<C, WIDTH>(row, column, chunk), origin + (row * p.width + column) * stride + chunk * 8,
               inside);
}
template <int C, int ROWS, int WIDTH, int THREADS>
constexpr u32 SHARES = (ROWS * 2 + THREADS / (2 * C) - 1) / (THREADS / (2 * C)) + (WIDTH > TILE_WIDTH);

// y = w ∗ x, or y += w ∗ x; TRANSPOSED: x is a gradient, and w acts as seen from its outputs, [in, taps reversed, out].
//
// A warp has 4 rows × 16 columns of the tile and 32 outputs: 64 sums per thread. For one horizontal shift and 16
// channels it holds the weights of the three vertical taps, and each row of the input that it loads serves up to three
// rows of the output. A thread's sums of a position belong to channels 2j, 2j+1 of each block of eight outputs j; with
// the weights' rows in the order of `place_of_output` they are eight consecutive channels, and are stored at once.
namespace narrow_conv {

constexpr int THREADS = 256, HALO = TILE_WIDTH + 2;
template <int C> constexpr int ROWS = 512 / C;

DEVICE u32 place_of_output(u32 c) { return (c & ~31u) + c / 2 % 4 * 8 + c / 8 % 4 * 2 + c % 2; }

// The weight [out, tap, in] to shared memory: [tap, place of out, in], or TRANSPOSED [tap, out, place of in] in reverse
// order of the taps.
template <int C, bool TRANSPOSED> DEVICE void load_weights(uint4 *to, const bf16 *w) {
    for (u32 i = threadIdx.x; i < TAPS * C * C / 8; i += THREADS) {
        u32 chunk = i % (C / 8), tap = i / (C / 8) % TAPS, out = i / (C / 8) / TAPS;
        uint4 values = ((const uint4 *)w)[i];
        if (TRANSPOSED) {
            u32 *row = (u32 *)(to + ((TAPS - 1 - tap) * C + out) * (C / 8)), word = chunk % 4, first = chunk / 4 * 4;
            row[slot<C>(out, first) * 4 + word] = values.x;
            row[slot<C>(out, first + 1) * 4 + word] = values.y;
            row[slot<C>(out, first + 2) * 4 + word] = values.z;
            row[slot<C>(out, first + 3) * 4 + word] = values.w;
        } else {
            u32 place = place_of_output(out);
            to[(tap * C + place) * (C / 8) + slot<C>(place, chunk)] = values;
        }
    }
}

// Sums of what a warp writes, for the norm behind the layer: Σ(y − k) and Σ(y − k)² per channel. Eight lanes of a warp
// share their eight channels; after a tile they share the sums out, so that a lane keeps two of sixteen.
struct ChannelSums {
    float kept[2] = {};
    // Adds the halves of `sums` of two lanes: the one whose bit `2·HALF` is set keeps the upper one.
    template <int HALF> static DEVICE void fold(float (&sums)[16], u32 lane) {
        bool upper = lane & 2 * HALF;
#pragma unroll
        for (int i = 0; i < HALF; i++) {
            float mine = upper ? sums[i + HALF] : sums[i], other = upper ? sums[i] : sums[i + HALF];
            sums[i] = mine + __shfl_xor_sync(~0u, other, 2 * HALF);
        }
    }
    DEVICE void add(float (&of_tile)[16], u32 lane) {
        fold<8>(of_tile, lane), fold<4>(of_tile, lane), fold<2>(of_tile, lane);
        kept[0] += of_tile[0], kept[1] += of_tile[1];
    }
    // Puts them in their place among 32 plain sums and 32 squares.
    DEVICE void store(float *to, u32 lane) const {
        u32 first = lane % 4 * 8 + lane / 8 % 2 * 4 + lane / 4 % 2 * 2;
        to[lane / 16 * 32 + first] = kept[0], to[lane / 16 * 32 + first + 1] = kept[1];
    }
};

// SUMS: also parts[block][2][C] of the norm behind the layer, with k = shift.
template <int C, bool TRANSPOSED, bool ADD, bool SUMS>
DEVICE void run(const bf16 *x, u32 sx, const bf16 *w, bf16 *y, u32 sy, Planes planes, const float *shift,
                float *parts) {
    constexpr int R = ROWS<C>, STEPS = 3 * (C / 16);
    constexpr u32 TILE = TILE_BYTES<C, R + 2, HALO>, ROW = TILE_BYTES<C, 1, HALO>, TAP = C * C * 2,
                  PARTS = SHARES<C, R + 2, HALO, THREADS>;
    extern __shared__ uint4 storage[];
    u32 weights = shared_address(storage), inputs = weights + TAPS * TAP;
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, matrix = lane / 8;
    u32 outputs = warp % (C / 32) * 32, column = warp / (C / 32) % 2 * 16, row = warp / (C / 32) / 2 * 4;

    u32 tiles = count_tiles<R>(planes), stage = 0;
    Corner at = corner_of<R>(planes, blockIdx.x), ahead;
    auto copy = [&](u32 share, Corner at, u32 stage) {
        copy_share<C, R + 2, HALO, THREADS>(share, inputs + stage * TILE, x, sx, planes,
                                            {at.item, at.row - 1, at.column - 1});
    };
    for (u32 share = 0; share < PARTS; share++) copy(share, at, 0);
    load_weights<C, TRANSPOSED>(storage, w);
    ChannelSums channel_sums;
    auto place = [=](Corner at, u32 h, u32 w) {
        return (((u64)at.item * planes.height + h) * planes.width + w) * sy + outputs + lane % 4 * 8;
    };

    for (u32 tile = blockIdx.x; tile < tiles; tile += gridDim.x, stage ^= 1, at = ahead) {
        // what is there already is on its way while we wait for the tile
        uint4 there[4][2];
        if (ADD)
#pragma unroll
            for (int output = 0; output < 4; output++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    u32 h = at.row + row + output, w = at.column + column + half * 8 + lane / 4;
                    there[output][half] = make_uint4(0, 0, 0, 0);
                    if (h < planes.height && w < planes.width)
                        there[output][half] = *(const uint4 *)(y + place(at, h, w));
                }
        wait_for_copies();
        __syncthreads();
        ahead = corner_of<R>(planes, tile + gridDim.x);
        if (at.row + row >= planes.height || at.column + column >= planes.width) {
            for (u32 share = 0; share < PARTS; share++) copy(share, ahead, stage ^ 1);
            continue;
        }
        float sums[4][4][4] = {};
        if (ADD)
#pragma unroll
            for (int output = 0; output < 4; output++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    float v[8];
                    Lanes<bf16, 8>::widen_all(there[output][half], v);
#pragma unroll
                    for (int j = 0; j < 4; j++)
                        sums[output][j][half * 2] = v[2 * j], sums[output][j][half * 2 + 1] = v[2 * j + 1];
                }
#pragma unroll
        for (int step = 0; step < STEPS; step++) {
            int shift = step / (C / 16), k = step % (C / 16);
            u32 b[3][4][2];
#pragma unroll
            for (int tap = 0; tap < 3; tap++)
#pragma unroll
                for (int pair = 0; pair < 2; pair++) {
                    u32 from = weights + (tap * 3 + shift) * TAP, m[4];
                    if (TRANSPOSED)
                        load_transposed(
                            m, from + chunk_at<C, C>(0, k * 16 + lane % 16, outputs / 8 + pair * 2 + matrix / 2));
                    else
                        load_matrices(
                            m,
                            from +
                                chunk_at<C, C>(0, outputs + pair * 16 + matrix / 2 * 8 + lane % 8, k * 2 + matrix % 2));
                    b[tap][pair * 2][0] = m[0], b[tap][pair * 2][1] = m[1], b[tap][pair * 2 + 1][0] = m[2],
                                  b[tap][pair * 2 + 1][1] = m[3];
                }
#pragma unroll
            for (u32 share = step; share < PARTS; share += STEPS) copy(share, ahead, stage ^ 1);
            u32 from = inputs + stage * TILE + chunk_at<C, HALO>(row, column + shift + lane % 16, k * 2 + lane / 16);
#pragma unroll
            for (int input = 0; input < 6; input++) {
                u32 a[4];
                load_matrices(a, from + input * ROW);
#pragma unroll
                for (int tap = 0; tap < 3; tap++) {
                    int output = input - tap;
                    if (output < 0 || output >= 4) continue;
#pragma unroll
                    for (int j = 0; j < 4; j++) multiply_add(sums[output][j], a, b[tap][j]);
                }
            }
        }
        float k[8], of_tile[16] = {};
        if (SUMS) load<float, 8>(shift + outputs + lane % 4 * 8, k);
#pragma unroll
        for (int output = 0; output < 4; output++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                u32 h = at.row + row + output, w = at.column + column + half * 8 + lane / 4;
                if (h >= planes.height || w >= planes.width) continue;
                bf16 *to = y + place(at, h, w);
                float v[8];
#pragma unroll
                for (int j = 0; j < 4; j++)
                    v[2 * j] = sums[output][j][half * 2], v[2 * j + 1] = sums[output][j][half * 2 + 1];
                Lanes<bf16, 8>::store(to, v);
                if (SUMS) {
                    // of the values as they were stored
#pragma unroll
                    for (int i = 0; i < 8; i++) {
                        float u = widen(narrow<bf16>(v[i])) - k[i];
                        of_tile[i] += u, of_tile[8 + i] += u * u;
                    }
                }
            }
        if (SUMS) channel_sums.add(of_tile, lane);
    }
    wait_for_copies();
    if (!SUMS) return;

    __syncthreads(); // nobody reads a tile any more
    float *of_warps = (float *)storage;
    channel_sums.store(of_warps + warp * 64, lane);
    __syncthreads();
    // thread: kind, channel; warps of the same outputs are C / 32 apart
    if (threadIdx.x >= 2 * C) return;
    u32 kind = threadIdx.x / C, channel = threadIdx.x % C;
    float sum = 0;
    for (u32 of = channel / 32; of < THREADS / 32; of += C / 32) sum += of_warps[of * 64 + kind * 32 + channel % 32];
    parts[((u64)blockIdx.x * 2 + kind) * C + channel] = sum;
}

} // namespace narrow_conv

#define NARROW_CONV(name, channels, transposed, add, blocks)                                     \
    extern "C" __global__ void __launch_bounds__(narrow_conv::THREADS, blocks)                    \
        name(const bf16 *x, u32 sx, const bf16 *w, bf16 *y, u32 sy, Planes planes) {              \
        narrow_conv::run<channels, transposed, add, false>(x, sx, w, y, sy, planes, 0, 0);        \
    }
NARROW_CONV(narrow_forward_32, 32, false, false, 2)
NARROW_CONV(narrow_forward_64, 64, false, false, 1)
NARROW_CONV(narrow_forward_add_32, 32, false, true, 2)
NARROW_CONV(narrow_forward_add_64, 64, false, true, 1)
NARROW_CONV(narrow_input_32, 32, true, false, 2)
NARROW_CONV(narrow_input_64, 64, true, false, 1)
NARROW_CONV(narrow_input_add_32, 32, true, true, 2)
NARROW_CONV(narrow_input_add_64, 64, true, true, 1)

#define NARROW_SUMS(name, channels, blocks)                                                                    \
    extern "C" __global__ void __launch_bounds__(narrow_conv::THREADS, blocks)                                 \
        name(const bf16 *x, u32 sx, const bf16 *w, bf16 *y, u32 sy, Planes planes, const float *shift,         \
             float *parts) {                                                                                   \
        narrow_conv::run<channels, false, false, true>(x, sx, w, y, sy, planes, shift, parts);                 \
    }
NARROW_SUMS(narrow_sums_32, 32, 2)
NARROW_SUMS(narrow_sums_64, 64, 1)

// dw[out, tap, in] = Σ over positions of dy[position, out] · x[position + tap, in], in parts that `narrow_join` adds.
//
// A warp has 32 outputs × 32 inputs × the three vertical taps of one horizontal shift, 96 sums per thread that stay in
// registers over all of the block's tiles: with 64 channels the block's twelve warps are all of the weight, with 32
// they share the positions by four. Going down 16 columns of a tile, three rows of x are at hand at a time, each loaded
// once.
namespace narrow_weight {

constexpr int THREADS = 384, HALO = TILE_WIDTH + 2, DEPTH = 8;
template <int C> constexpr int ROWS = 512 / C;
template <int C> constexpr int SPLITS = C == 32 ? 4 : 1;

template <int C> DEVICE void run(const bf16 *x, u32 sx, const bf16 *dy, u32 sy, float *parts, Planes planes) {
    constexpr int R = ROWS<C>, S = SPLITS<C>, UNITS = R / DEPTH * (TILE_WIDTH / 16), STEPS = UNITS / S * DEPTH;
    constexpr u32 X = TILE_BYTES<C, R + 2, HALO>, STAGE = X + TILE_BYTES<C, R, TILE_WIDTH>;
    constexpr u32 ROW_X = TILE_BYTES<C, 1, HALO>, ROW_Y = TILE_BYTES<C, 1, TILE_WIDTH>;
    constexpr u32 PARTS_X = SHARES<C, R + 2, HALO, THREADS>, PARTS = PARTS_X + SHARES<C, R, TILE_WIDTH, THREADS>;
    extern __shared__ uint4 storage[];
    u32 memory = shared_address(storage);
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, matrix = lane / 8, shift = warp % 3;
    u32 split = warp / 3 % S, outputs = warp / 3 / S / (C / 32) * 32, inputs = warp / 3 / S % (C / 32) * 32;

    u32 tiles = count_tiles<R>(planes), stage = 0;
    Corner at = corner_of<R>(planes, blockIdx.x), ahead;
    auto copy = [&](u32 share, Corner at, u32 stage) {
        u32 to = memory + stage * STAGE;
        if (share < PARTS_X)
            copy_share<C, R + 2, HALO, THREADS>(share, to, x, sx, planes, {at.item, at.row - 1, at.column - 1});
        else copy_share<C, R, TILE_WIDTH, THREADS>(share - PARTS_X, to + X, dy, sy, planes, at);
    };
    for (u32 share = 0; share < PARTS; share++) copy(share, at, 0);

    float sums[3][2][4][4] = {};
    for (u32 tile = blockIdx.x; tile < tiles; tile += gridDim.x, stage ^= 1, at = ahead) {
        wait_for_copies();
        __syncthreads();
        u32 from = memory + stage * STAGE;
        ahead = corner_of<R>(planes, tile + gridDim.x);
#pragma unroll
        for (int turn = 0; turn < UNITS / S; turn++) {
            u32 unit = turn * S + split, row = unit / 2 * DEPTH, column = unit % 2 * 16;
            u32 from_x[2], from_y[2], b[3][4][2];
#pragma unroll
            for (int pair = 0; pair < 2; pair++) {
                from_x[pair] =
                    from + chunk_at<C, HALO>(row, column + shift + lane % 16, inputs / 8 + pair * 2 + matrix / 2);
                from_y[pair] = from + X +
                    chunk_at<C, TILE_WIDTH>(row, column + matrix / 2 * 8 + lane % 8,
                                            outputs / 8 + pair * 2 + matrix % 2);
            }
            auto load_x = [&](int line, u32(&b)[4][2]) {
#pragma unroll
                for (int pair = 0; pair < 2; pair++) {
                    u32 m[4];
                    load_transposed(m, from_x[pair] + line * ROW_X);
                    b[pair * 2][0] = m[0], b[pair * 2][1] = m[1], b[pair * 2 + 1][0] = m[2], b[pair * 2 + 1][1] = m[3];
                }
            };
            load_x(0, b[0]);
            load_x(1, b[1]);
#pragma unroll
            for (int line = 0; line < DEPTH; line++) {
                load_x(line + 2, b[(line + 2) % 3]);
                u32 a[2][4];
                load_transposed(a[0], from_y[0] + line * ROW_Y);
                load_transposed(a[1], from_y[1] + line * ROW_Y);
#pragma unroll
                for (u32 share = turn * DEPTH + line; share < PARTS; share += STEPS) copy(share, ahead, stage ^ 1);
#pragma unroll
                for (int tap = 0; tap < 3; tap++)
#pragma unroll
                    for (int i = 0; i < 2; i++)
#pragma unroll
                        for (int j = 0; j < 4; j++) multiply_add(sums[tap][i][j], a[i], b[(line + tap) % 3][j]);
            }
        }
    }
    wait_for_copies();

    float *part = parts + (u64)(blockIdx.x * S + split) * TAPS * C * C;
#pragma unroll
    for (int tap = 0; tap < 3; tap++)
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    u32 out = outputs + i * 16 + half * 8 + lane / 4, in = inputs + j * 8 + lane % 4 * 2;
                    float2 pair = make_float2(sums[tap][i][j][half * 2], sums[tap][i][j][half * 2 + 1]);
                    *(float2 *)(part + (out * TAPS + tap * 3 + shift) * C + in) = pair;
                }
}

} // namespace narrow_weight

#define NARROW_WEIGHT(name, channels)                                                      \
    extern "C" __global__ void __launch_bounds__(narrow_weight::THREADS, 1)                \
        name(const bf16 *x, u32 sx, const bf16 *dy, u32 sy, float *parts, Planes planes) { \
        narrow_weight::run<channels>(x, sx, dy, sy, parts, planes);                        \
    }
NARROW_WEIGHT(narrow_weight_32, 32)
NARROW_WEIGHT(narrow_weight_64, 64)

// Adds the parts of a gradient [out, tap, in], always in the same order, into its place in the weight's own order.
// Blocks are (values, strips of parts).
extern "C" __global__ void narrow_join(const float *parts, u32 count, u32 outputs, u32 inputs, float *dw, u32 stride,
                                       u32 first) {
    extern __shared__ float shared[];
    u32 values = outputs * TAPS * inputs, i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum[1] = {};
    if (i < values)
        for (u32 part = threadIdx.y; part < count; part += blockDim.y) sum[0] += parts[(u64)part * values + i];
    sum_rows_of_block<1>(sum, shared);
    u32 in = i % inputs, tap = i / inputs % TAPS, out = i / inputs / TAPS;
    if (i < values && threadIdx.y == 0) dw[(u64)out * stride + first + in * TAPS + tap] = sum[0];
}
