// One optimizer step over all tensors: gradient in; dual, moments and weights out; zeros and squares counted. What
// happens to a tensor is in its StepPlan; formulas as in `bregman/src/optimizer/rule`, so that a run may change its
// device. The structs are declared by `layout.rs`, the coefficients of an update by the crate `bregman`.

DEVICE float shrink(const StepPlan &plan, float x) {
    if (plan.shrinkage == Shrinkage::Soft) return (x - fminf(fmaxf(x, -plan.threshold), plan.threshold)) * plan.scale;
    if (plan.shrinkage == Shrinkage::SoftNonNegative) return (x - fminf(x, plan.threshold)) * plan.scale;
    return x * plan.scale;
}

// The next x of one element; a moment that is not kept comes in as 0.
DEVICE float advance(const StepPlan &plan, float x, float g, float &m, float &v) {
    switch (plan.update) {
    case Update::Rest:
        return x;
    case Update::LinBreg: {
        const LinBregCoefficients &c = plan.coefficients.linbreg;
        m = c.mu * m + c.fresh * g;
        return x - m;
    }
    case Update::Adam: {
        const AdamCoefficients &c = plan.coefficients.adam;
        m = c.beta1 * m + c.fresh1 * g;
        v = c.beta2 * v + c.fresh2 * (g * g);
        return c.keep * x - c.rate * (m / (sqrtf(v) * c.per_root + c.eps));
    }
    case Update::Sgd: {
        const SgdCoefficients &c = plan.coefficients.sgd;
        g += c.decay * x;
        m = c.mu * m + g;
        return x - c.tau * (c.of_g * g + c.of_m * m);
    }
    case Update::Str: {
        const StrCoefficients &c = plan.coefficients.str;
        g = (fabsf(x) > c.threshold ? g : 0.f) + c.decay * x;
        m = c.mu * m + g;
        return x - c.tau * (c.of_g * g + c.of_m * m);
    }
    }
    return x;
}

// ‖x‖ of a group by half a warp, every thread of which receives it. Summed as `lanes` of `bregman-base` does, each of
// 16 lanes on its own and then one after the other, so that a group is zero here if and only if it is zero there, and
// if and only if the quantile law counted it so.
DEVICE float group_norm(const float *x, u32 length) {
    u32 half = 0xffffu << (threadIdx.x & 16);
    float lane = 0.f, sum = 0.f;
    for (u32 i = threadIdx.x % 16; i < length; i += 16) lane = __fadd_rn(lane, __fmul_rn(x[i], x[i]));
    for (int other = 0; other < 16; other++) sum = __fadd_rn(sum, __shfl_sync(half, lane, other, 16));
    return __fsqrt_rn(sum);
}

#define NONE 0xffffffffu

extern "C" __global__ void step_tensors(const StepJob *jobs, const StepPlan *plans, BlockCount *counts) {
    __shared__ u32 first_bad;
    const StepJob job = jobs[blockIdx.x];
    StepPlan plan = plans[job.tensor];
    plan.theta += job.start, plan.g += job.start; // g is read in steps that move only
    if (plan.p) plan.p += job.start;
    if (plan.m) plan.m += job.start;
    if (plan.v) plan.v += job.start;
    if (plan.mask) plan.mask += job.start;
    if (threadIdx.x == 0) first_bad = NONE;
    __syncthreads();
    bool moves = plan.update != Update::Rest, grouped = plan.shrinkage == Shrinkage::Group;
    bool keeps_m = plan.m, keeps_v = plan.v;
    float *at = plan.p ? plan.p : plan.theta; // x: the dual, or the weights themselves
    u32 zeros = 0;
    float squares = 0.f;
    u32 quads = job.length / 4;
    for (u32 q = threadIdx.x; q < quads + job.length % 4; q += blockDim.x) {
        // whole quads first, then what is left one by one
        bool whole = q < quads;
        u32 i = whole ? 4 * q : 4 * quads + (q - quads);
        int lanes = whole ? 4 : 1;
        float x[4], g[4] = {}, m[4] = {}, v[4] = {}, w[4] = {1.f, 1.f, 1.f, 1.f};
        if (plan.frozen) { // only weights that are not 0 move
            if (whole) *(float4 *)w = *(const float4 *)(plan.theta + i);
            else w[0] = plan.theta[i];
        }
        if (whole) {
            *(float4 *)x = *(const float4 *)(at + i);
            if (moves) *(float4 *)g = *(const float4 *)(plan.g + i);
            if (keeps_m) *(float4 *)m = *(const float4 *)(plan.m + i);
            if (keeps_v) *(float4 *)v = *(const float4 *)(plan.v + i);
        } else {
            x[0] = at[i];
            if (moves) g[0] = plan.g[i];
            if (keeps_m) m[0] = plan.m[i];
            if (keeps_v) v[0] = plan.v[i];
        }
#pragma unroll
        for (int k = 0; k < 4; k++) {
            if (k >= lanes) break;
            if (w[k] == 0.f) { // frozen
                zeros++;
                continue;
            }
            if (!(fabsf(g[k]) <= 3.4028234e38f)) { // not finite: counts as 0, and is reported
                atomicMin(&first_bad, i + k);
                g[k] = 0.f;
            }
            x[k] = advance(plan, x[k], g[k], m[k], v[k]);
            w[k] = grouped ? x[k] : shrink(plan, x[k]);
            if (plan.mask && !plan.mask[i + k]) w[k] = 0.f, m[k] = 0.f;
            zeros += w[k] == 0.f;
            squares += w[k] * w[k];
        }
        if (whole) {
            if (moves && plan.p) *(float4 *)(plan.p + i) = *(float4 *)x;
            *(float4 *)(plan.theta + i) = *(float4 *)w;
            if (moves && keeps_m) *(float4 *)(plan.m + i) = *(float4 *)m;
            if (moves && keeps_v) *(float4 *)(plan.v + i) = *(float4 *)v;
        } else {
            if (moves && plan.p) plan.p[i] = x[0];
            plan.theta[i] = w[0];
            if (moves && keeps_m) plan.m[i] = m[0];
            if (moves && keeps_v) plan.v[i] = v[0];
        }
    }
    if (grouped) { // x stands in θ: half a warp per group shrinks its norm
        __syncthreads();
        zeros = 0, squares = 0.f;
        for (u32 group = threadIdx.x / 16; group < job.length / plan.group; group += blockDim.x / 16) {
            float *theta = plan.theta + (u64)group * plan.group, norm = group_norm(theta, plan.group);
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
    zeros = sum_block(zeros);
    float value = first_bad == NONE ? 0.f : plan.g[first_bad];
    if (threadIdx.x == 0) counts[blockIdx.x] = {total, zeros, first_bad, value, 0};
}

// Σ g·sgn(θ), a part per block.
extern "C" __global__ void pull_threshold(const float *theta, const float *gradient, u64 count, double *parts) {
    double sum = 0;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (u64)gridDim.x * blockDim.x) {
        float x = theta[i], g = gradient[i];
        if (fabsf(g) <= 3.4028234e38f) sum += x > 0.f ? g : x < 0.f ? -g : 0.f;
    }
    sum = sum_block(sum);
    if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

// Another mask: weights it drops become 0, weights it lets grow again start with moments of 0.
extern "C" __global__ void set_mask(
    const unsigned char *fresh, unsigned char *mask, float *theta, float *m, float *v, u64 count
) {
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (u64)gridDim.x * blockDim.x) {
        bool keep = fresh[i], grows = keep && !mask[i];
        if (!keep) theta[i] = 0.f;
        if (grows && m) m[i] = 0.f;
        if (grows && v) v[i] = 0.f;
        mask[i] = keep;
    }
}
