// Features from samples: between two matrix products what is not one. See `FilterbankTables`.

// Overlapping frames side by side: out[row, n] for rows item · frames + frame; outside of an utterance are zeros.
// Counted from their first sample if they are `relative`.
extern "C" __global__ void gather_frames(const float *samples, u32 length, u32 frames, u32 window, u32 hop, int origin,
                                         u32 relative, float *out, u64 count) {
    for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < count; i += (u64)gridDim.x * blockDim.x) {
        u64 row = i / window;
        const float *utterance = samples + row / frames * length;
        long long first = origin + (long long)(row % frames) * hop, at = first + (u32)(i % window);
        float x = at >= 0 && at < length ? utterance[at] : 0.f;
        out[i] = relative && first >= 0 && first < length ? x - utterance[first] : x;
    }
}

// |spectrum|² of rows of real parts, then imaginary parts.
extern "C" __global__ void power_spectrum(const float *spectrum, u32 frequencies, float *power, u64 count) {
    for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < count; i += (u64)gridDim.x * blockDim.x) {
        const float *row = spectrum + i / frequencies * 2 * frequencies + i % frequencies;
        power[i] = row[0] * row[0] + row[frequencies] * row[frequencies];
    }
}

// A block per utterance turns its energies [frames, bins] into features: logarithm, floor, mean over time.
extern "C" __global__ void log_mel(float *features, u32 frames, u32 bins, float smallest, float factor, float top_db) {
    float *x = features + (u64)blockIdx.x * frames * bins, loudest = -INFINITY;
    for (u32 i = threadIdx.x; i < frames * bins; i += blockDim.x) {
        float value = factor * logf(fmaxf(x[i], smallest));
        x[i] = value;
        loudest = fmaxf(loudest, value);
    }
    float floor = max_block(loudest) - top_db;
    __syncthreads();
    for (u32 bin = threadIdx.x; bin < bins; bin += blockDim.x) {
        double sum = 0;
        for (u32 i = bin; i < frames * bins; i += bins) sum += fmaxf(x[i], floor);
        float mean = (float)(sum / frames);
        for (u32 i = bin; i < frames * bins; i += bins) x[i] = fmaxf(x[i], floor) - mean;
    }
}
