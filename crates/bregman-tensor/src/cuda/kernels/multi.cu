// Kernels over all tensors of a network at once: a block per stretch of some tensor.

extern "C" __global__ void square_sums(const Stretch *stretches, double *parts) {
    Stretch s = stretches[blockIdx.x];
    double sum = 0;
    for (u32 i = threadIdx.x; i < s.length; i += blockDim.x) sum += (double)s.values[i] * s.values[i];
    sum = sum_block(sum);
    if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

// outcome = [norm, factor that brings it down to the limit]
extern "C" __global__ void clip_factor(const double *parts, u32 count, float limit, float *outcome) {
    double sum = 0;
    for (u32 i = threadIdx.x; i < count; i += blockDim.x) sum += parts[i];
    float norm = (float)sqrt(sum_block(sum));
    if (threadIdx.x == 0) outcome[0] = norm, outcome[1] = norm > limit ? limit / norm : 1.f;
}

extern "C" __global__ void scale_stretches(const Stretch *stretches, const float *outcome) {
    float factor = outcome[1];
    if (factor == 1.f) return;
    Stretch s = stretches[blockIdx.x];
    for (u32 i = threadIdx.x; i < s.length; i += blockDim.x) s.values[i] *= factor;
}

// A gradient without what is outside of the support, in a block of a matrix.
extern "C" __global__ void keep_support(const float *support, float *dw, u32 rows, u32 columns, u32 stride) {
    u64 count = (u64)rows * columns;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (u64)gridDim.x * blockDim.x) {
        u64 at = i / columns * stride + i % columns;
        if (support[at] == 0.f) dw[at] = 0.f;
    }
}
