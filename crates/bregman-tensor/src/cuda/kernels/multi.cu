// Kernels over all tensors of a network at once: a block per stretch of some tensor.

struct Stretch {
    float *values;
    u32 length, tensor;
};

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

// One optimizer step over all tensors: gradient in; dual, moments and weights out; zeros and squares counted. What happens to a tensor is
// in its Plan, see `Motion` and `Plan` of the crate `bregman`; formulas as there, so that a run may change its device.

struct Job {
    float *theta;
    const float *g;
    float *p, *m, *v;
    const unsigned char *mask;
    u32 length, tensor;
};

enum Motion { REST = 0, LINBREG = 1, ADAM = 2, SGD = 3 };
enum Shrinkage { IDENTITY = 0, SOFT = 1, NON_NEGATIVE = 2, GROUP = 3 };

struct Plan {
    int motion, shrinkage;
    u32 group;
    float numbers[8];
    float threshold, scale;
};

struct Count {
    double squares;
    u32 zeros, bad;
};

DEVICE float shrink(const Plan &plan, float x) {
    if (plan.shrinkage == SOFT) return (x - fminf(fmaxf(x, -plan.threshold), plan.threshold)) * plan.scale;
    if (plan.shrinkage == NON_NEGATIVE) return (x - fminf(x, plan.threshold)) * plan.scale;
    return x * plan.scale;
}

// The next x of one element; `bad` where its gradient is not finite.
DEVICE float advance(const Plan &plan, float x, float g, float &m, float &v, bool keeps_m, bool &bad) {
    const float *c = plan.numbers;
    bad = !(fabsf(g) <= 3.4028234e38f);
    if (bad) g = 0.f;
    switch (plan.motion) {
    case LINBREG:
        if (!keeps_m) return x - c[0] * g;
        m = c[1] * m + c[2] * g;
        return x - m;
    case ADAM:
        m = c[0] * m + c[2] * g;
        v = c[1] * v + c[3] * (g * g);
        return c[7] * x - c[6] * (m / (sqrtf(v) * c[5] + c[4]));
    case SGD:
        g += c[2] * x;
        if (!keeps_m) return x - c[0] * g;
        m = c[1] * m + g;
        return x - c[0] * (c[3] * g + c[4] * m);
    }
    return x;
}

// ‖x‖ of a group by half a warp, every thread of which receives it. Summed as `lanes` of the crate `bregman` does, each of 16 lanes on its own and
// then one after the other, so that a group lives here if and only if it lives there, and if and only if the quantile law counted on it.
DEVICE float group_norm(const float *x, u32 length) {
    u32 half = 0xffffu << (threadIdx.x & 16);
    float lane = 0.f, sum = 0.f;
    for (u32 i = threadIdx.x % 16; i < length; i += 16) lane = __fadd_rn(lane, __fmul_rn(x[i], x[i]));
    for (int other = 0; other < 16; other++) sum = __fadd_rn(sum, __shfl_sync(half, lane, other, 16));
    return __fsqrt_rn(sum);
}

#define NONE 0xffffffffu

extern "C" __global__ void update(const Job *jobs, const Plan *plans, Count *counts) {
    __shared__ u32 first_bad;
    Job job = jobs[blockIdx.x];
    const Plan plan = plans[job.tensor];
    if (threadIdx.x == 0) first_bad = NONE;
    __syncthreads();
    bool moves = plan.motion != REST, keeps_m = job.m, keeps_v = job.v, grouped = plan.shrinkage == GROUP;
    float *at = job.p ? job.p : job.theta; // x: the dual, or the weights themselves
    u32 zeros = 0;
    float squares = 0.f;
    u32 quads = job.length / 4;
    for (u32 q = threadIdx.x; q < quads + job.length % 4; q += blockDim.x) {
        // whole quads first, then what is left one by one
        bool whole = q < quads;
        u32 i = whole ? 4 * q : 4 * quads + (q - quads);
        int lanes = whole ? 4 : 1;
        float x[4], g[4] = {}, m[4] = {}, v[4] = {}, w[4];
        if (whole) {
            *(float4 *)x = *(const float4 *)(at + i);
            if (moves) *(float4 *)g = *(const float4 *)(job.g + i);
            if (keeps_m) *(float4 *)m = *(const float4 *)(job.m + i);
            if (keeps_v) *(float4 *)v = *(const float4 *)(job.v + i);
        } else {
            x[0] = at[i];
            if (moves) g[0] = job.g[i];
            if (keeps_m) m[0] = job.m[i];
            if (keeps_v) v[0] = job.v[i];
        }
#pragma unroll
        for (int k = 0; k < 4; k++) {
            if (k >= lanes) break;
            bool bad;
            x[k] = advance(plan, x[k], g[k], m[k], v[k], keeps_m, bad);
            if (bad) atomicMin(&first_bad, i + k);
            w[k] = grouped ? x[k] : shrink(plan, x[k]);
            if (job.mask && !job.mask[i + k]) w[k] = 0.f, m[k] = 0.f;
            zeros += w[k] == 0.f;
            squares += w[k] * w[k];
        }
        if (whole) {
            if (moves && job.p) *(float4 *)(job.p + i) = *(float4 *)x;
            *(float4 *)(job.theta + i) = *(float4 *)w;
            if (moves && keeps_m) *(float4 *)(job.m + i) = *(float4 *)m;
            if (moves && keeps_v) *(float4 *)(job.v + i) = *(float4 *)v;
        } else {
            if (moves && job.p) job.p[i] = x[0];
            job.theta[i] = w[0];
            if (moves && keeps_m) job.m[i] = m[0];
            if (moves && keeps_v) job.v[i] = v[0];
        }
    }
    if (grouped) { // x stands in θ: half a warp per group shrinks its norm
        __syncthreads();
        zeros = 0, squares = 0.f;
        for (u32 group = threadIdx.x / 16; group < job.length / plan.group; group += blockDim.x / 16) {
            float *theta = job.theta + (u64)group * plan.group, norm = group_norm(theta, plan.group);
            float keep = norm > plan.threshold ? (norm - plan.threshold) / norm * plan.scale : 0.f;
            for (u32 i = threadIdx.x % 16; i < plan.group; i += 16) {
                float w = theta[i] * keep + 0.f;
                theta[i] = w;
                zeros += w == 0.f;
                squares += w * w;
            }
        }
    }
    double total = sum_block((double)squares);
    u32 dead = sum_block(zeros);
    if (threadIdx.x == 0) counts[blockIdx.x] = {total, dead, first_bad};
}
