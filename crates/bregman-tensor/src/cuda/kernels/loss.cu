// Losses over scores [batch, classes], fused with their gradients; unit vectors of the cosine classifier. All in f32.

#define SHORTEST 1e-12f

// unit[b] = x[b] / ‖x[b]‖: one block per item.
extern "C" __global__ void unit(const float *x, u32 sx, float *unit, u32 su, float *lengths, u32 channels) {
    x += (u64)blockIdx.x * sx, unit += (u64)blockIdx.x * su;
    double squares = 0;
    for (u32 c = threadIdx.x; c < channels; c += blockDim.x) squares += (double)x[c] * x[c];
    float length = fmaxf((float)sqrt(sum_block(squares)), SHORTEST);
    for (u32 c = threadIdx.x; c < channels; c += blockDim.x) unit[c] = x[c] / length;
    if (threadIdx.x == 0) lengths[blockIdx.x] = length;
}

// d ← (d − (d·u) u) / ‖x‖
extern "C" __global__ void unit_backward(const float *unit, u32 su, const float *lengths, float *d, u32 sd,
                                         u32 channels) {
    unit += (u64)blockIdx.x * su, d += (u64)blockIdx.x * sd;
    double along = 0;
    for (u32 c = threadIdx.x; c < channels; c += blockDim.x) along += (double)unit[c] * d[c];
    along = sum_block(along);
    float length = lengths[blockIdx.x];
    for (u32 c = threadIdx.x; c < channels; c += blockDim.x) d[c] = (d[c] - (float)along * unit[c]) / length;
}

extern "C" __global__ void row_lengths(const float *w, u32 stride, u32 rows, float *lengths) {
    u32 row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (row >= rows) return;
    float squares = 0;
    for (u32 i = threadIdx.x % 32; i < stride; i += 32) squares += w[(u64)row * stride + i] * w[(u64)row * stride + i];
    for (int lane = 16; lane; lane >>= 1) squares += __shfl_xor_sync(~0u, squares, lane);
    if (threadIdx.x % 32 == 0) lengths[row] = squares == 0.f ? 1.f : fmaxf(sqrtf(squares), SHORTEST);
}

extern "C" __global__ void remove_radial(const float *w, const float *radial, u32 stride, float *dw, u64 count) {
    for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < count; i += (u64)gridDim.x * blockDim.x)
        dw[i] -= radial[i / stride] * w[i];
}

struct Margin {
    float scale, margin;
    int easy;
};

// The target's margin: φ(cos θ) = cos(θ + m), continued beyond θ = π − m, and its derivative in cos θ.
DEVICE void with_margin(Margin spec, float cosine, float &phi, float &slope) {
    double m = spec.margin, c = cosine;
    phi = cosine, slope = 1.f;
    if (m == 0.0) return;
    double sine = sqrt(fmax(1.0 - c * c, 0.0)), threshold = cos(3.14159265358979323846 - m);
    if (spec.easy ? c > 0.0 : c > threshold) {
        phi = (float)(c * cos(m) - sine * sin(m));
        slope = (float)(cos(m) + sin(m) * c / fmax(sine, 1e-6));
    } else if (!spec.easy) {
        phi = (float)(c - 1.0 - threshold); // WeSpeaker's form
    }
}

// Result of the softmax of one item.
struct Item {
    float target, slope, largest, total;
};

// One block per item. `lengths` are the rows' norms of a cosine classifier, absent for plain scores.
extern "C" __global__ void softmax_items(Margin spec, const float *lengths, const float *labels, const float *scores,
                                         u32 stride, u32 classes, Item *items, float *results) {
    scores += (u64)blockIdx.x * stride;
    u32 label = (u32)labels[blockIdx.x];
    float best = -INFINITY;
    for (u32 c = threadIdx.x; c < classes; c += blockDim.x)
        best = fmaxf(best, lengths ? scores[c] / lengths[c] : scores[c]);
    best = max_block(best);
    float own = lengths ? scores[label] / lengths[label] : scores[label], logit, slope;
    with_margin(spec, own, logit, slope);
    float target = spec.scale * logit, largest = spec.scale * fmaxf(best, logit);
    double total = 0;
    for (u32 c = threadIdx.x; c < classes; c += blockDim.x) {
        float score = lengths ? scores[c] / lengths[c] : scores[c];
        total += expf((c == label ? target : spec.scale * score) - largest);
    }
    total = sum_block(total);
    if (threadIdx.x) return;
    items[blockIdx.x] = {target, slope, largest, (float)total};
    results[2 * blockIdx.x] = (float)((double)largest - target + log(total));
    results[2 * blockIdx.x + 1] = own >= best;
}

// Scores become the gradient; radial[class] = Σ g·cos / ‖w‖². Blocks of 32 classes × 8 strips of items.
extern "C" __global__ void softmax_gradient(Margin spec, const float *lengths, const float *labels, const Item *items,
                                            const float *results, float *scores, u32 stride, u32 batch, u32 classes,
                                            float *radial, float *outcome) {
    __shared__ float shared[8][32];
    u32 c = blockIdx.x * 32 + threadIdx.x;
    float length = lengths && c < classes ? lengths[c] : 1.f, share = spec.scale / batch, along = 0;
    if (c < classes) {
        for (u32 b = threadIdx.y; b < batch; b += 8) {
            float score = scores[(u64)b * stride + c] / length;
            Item item = items[b];
            bool target = c == (u32)labels[b];
            float probability = expf((target ? item.target : spec.scale * score) - item.largest) / item.total;
            float gradient = share * (target ? (probability - 1.f) * item.slope : probability);
            along += gradient * score;
            scores[(u64)b * stride + c] = gradient / length;
        }
    }
    shared[threadIdx.y][threadIdx.x] = along;
    __syncthreads();
    if (threadIdx.y) return;
    for (int y = 1; y < 8; y++) along += shared[y][threadIdx.x];
    if (radial && c < classes) radial[c] = along / (length * length);
    if (c == 0) {
        double loss = 0, correct = 0;
        for (u32 b = 0; b < batch; b++) loss += results[2 * b], correct += results[2 * b + 1];
        outcome[0] = (float)(loss / batch), outcome[1] = (float)correct;
    }
}
