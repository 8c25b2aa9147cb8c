// What controllers and variants ask of the duals, a block per stretch of some tensor: counts of keys for the quantile
// law, corrections where λ moves. As `Duals` and `Correction` of the crate `bregman`, and equal to them to the last
// bit: so every operation rounds by itself (`__fmul_rn` and its like are never fused), and a group's squares are summed
// in their order, see `group_norm`.

// |p|, max(p, 0) or the norm of a group: what a threshold is compared with.
template <typename F> DEVICE void each_magnitude(const DualJob &d, F each) {
    if (d.shrinkage == Shrinkage::Group) {
        for (u32 g = threadIdx.x / 16; g < d.length / d.group; g += blockDim.x / 16) {
            float norm = group_norm(d.p + (u64)g * d.group, d.group);
            if (threadIdx.x % 16 == 0) each(norm);
        }
    } else if (d.shrinkage != Shrinkage::Identity) {
        bool soft = d.shrinkage == Shrinkage::Soft;
        for (u32 i = threadIdx.x; i < d.length; i += blockDim.x) each(soft ? fabsf(d.p[i]) : fmaxf(d.p[i], 0.f));
    }
}

DEVICE float threshold_at(double lambda, double weight) { return __double2float_rn(__dmul_rn(lambda, weight)); }

// The bits of the smallest λ whose threshold reaches `magnitude`.
DEVICE u32 key_of(float magnitude, double weight) {
    if (weight == 1. || !(magnitude <= 3.4028234e38f)) return __float_as_uint(magnitude);
    u32 bits = __float_as_uint(__double2float_rn(__ddiv_rn(magnitude, weight)));
    while (threshold_at(__uint_as_float(bits), weight) < magnitude) bits++;
    while (bits && threshold_at(__uint_as_float(bits - 1), weight) >= magnitude) bits--;
    return bits;
}

#define MOST_BINS 2048

// Adds the size of every group whose key has the prefix to the bin of its next `width` bits.
extern "C" __global__ void dual_histogram(
    const DualJob *duals, const u32 *chosen, u32 prefix, u32 shift, u32 width, u64 *bins
) {
    __shared__ u32 counts[MOST_BINS];
    const DualJob d = duals[chosen[blockIdx.x]];
    for (u32 i = threadIdx.x; i < 1u << width; i += blockDim.x) counts[i] = 0;
    __syncthreads();
    each_magnitude(d, [&](float magnitude) {
        u32 bits = key_of(magnitude, d.weight);
        if (bits >> (shift + width) == prefix) atomicAdd(&counts[bits >> shift & ((1u << width) - 1)], 1u);
    });
    __syncthreads();
    for (u32 i = threadIdx.x; i < 1u << width; i += blockDim.x) {
        if (counts[i]) atomicAdd(&bins[i], (u64)counts[i] * d.group);
    }
}

// Adds the size of every group that would be non-zero at `lambda`.
extern "C" __global__ void dual_non_zeros(const DualJob *duals, const u32 *chosen, double lambda, u64 *count) {
    const DualJob d = duals[chosen[blockIdx.x]];
    float threshold = threshold_at(lambda, d.weight);
    u32 groups = 0;
    each_magnitude(d, [&](float magnitude) { groups += magnitude > threshold; });
    groups = sum_block(groups);
    if (threadIdx.x == 0) atomicAdd(count, (u64)groups * d.group);
}

// The dual of a non-zero weight at the new λ.
DEVICE float moved(const DualJob &d, float p, float theta) {
    return __fadd_rn(__fmul_rn(d.ratio, p), __fdiv_rn(__fmul_rn(__fsub_rn(1.f, d.ratio), theta), d.delta));
}

extern "C" __global__ void correct_duals(const DualJob *duals) {
    const DualJob d = duals[blockIdx.x];
    if (d.shrinkage == Shrinkage::Group) {
        u32 lane = threadIdx.x % 16, half = 0xffffu << (threadIdx.x & 16);
        for (u32 g = threadIdx.x / 16; g < d.length / d.group; g += blockDim.x / 16) {
            float *p = d.p + (u64)g * d.group;
            const float *theta = d.theta + (u64)g * d.group;
            bool non_zero = false;
            for (u32 i = lane; i < d.group; i += 16) non_zero |= theta[i] != 0.f;
            if (__any_sync(half, non_zero)) {
                for (u32 i = lane; i < d.group; i += 16) p[i] = moved(d, p[i], theta[i]);
            } else {
                float norm = group_norm(p, d.group), keep = norm > d.bound ? __fdiv_rn(d.bound, norm) : 1.f;
                for (u32 i = lane; i < d.group; i += 16) p[i] = __fmul_rn(p[i], keep);
            }
        }
        return;
    }
    bool soft = d.shrinkage == Shrinkage::Soft;
    for (u32 i = threadIdx.x; i < d.length; i += blockDim.x) {
        float p = d.p[i], theta = d.theta[i];
        if (theta != 0.f) d.p[i] = moved(d, p, theta);
        else d.p[i] = p > d.bound ? d.bound : soft && p < -d.bound ? -d.bound : p;
    }
}
