// Where the weights of a network have gradients, and the gradients there as one message.

// Whether the gradient at this place of a stretch travels: everywhere, or where the weight is not zero.
DEVICE bool travels(SupportStretch s, u32 i) { return i < s.length && (!s.support || s.support[i] != 0.f); }

extern "C" __global__ void support_counts(const SupportStretch *stretches, u32 *counts) {
    SupportStretch s = stretches[blockIdx.x];
    u32 count = 0;
    for (u32 i = threadIdx.x; i < s.length; i += blockDim.x) count += travels(s, i);
    double sum = sum_block((double)count); // exact
    if (threadIdx.x == 0) counts[blockIdx.x] = (u32)sum;
}

// The addresses of the gradients that travel, in their order, each stretch's from its start on. Blocks of 256 threads.
extern "C" __global__ void support_places(const SupportStretch *stretches, const u32 *starts, float **places) {
    __shared__ u32 of_warp[8];
    SupportStretch s = stretches[blockIdx.x];
    u32 next = starts[blockIdx.x], warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (u32 first = 0; first < s.length; first += 256) {
        u32 i = first + threadIdx.x;
        bool live = travels(s, i);
        u32 votes = __ballot_sync(~0u, live);
        if (lane == 0) of_warp[warp] = __popc(votes);
        __syncthreads();
        u32 at = next + __popc(votes & ((1u << lane) - 1));
        for (u32 other = 0; other < 8; other++) {
            if (other < warp) at += of_warp[other];
            next += of_warp[other];
        }
        if (live) places[at] = s.gradient + i;
        __syncthreads();
    }
}

// A message has room for more than there is: the rest of its places are null.
extern "C" __global__ void support_pack(const float *const *places, u32 count, float *message) {
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
        message[i] = places[i] ? *places[i] : 0.f;
}

extern "C" __global__ void support_unpack(const float *message, u32 count, float *const *places) {
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
        if (places[i]) *places[i] = message[i];
}
