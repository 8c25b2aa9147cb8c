// Decides whether two recordings are of the same speaker.
//
//   cargo build --release -p bregman-c
//   cd crates/bregman-c/examples
//   cc -o verify verify.c -I ../include ../../../target/release/libbregman_c.a -lpthread -ldl -lm
//   ./verify model.breg first.wav second.wav
//
// The recordings are WAV files of one channel and 16 bits, at the model's rate.

#include "bregman.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t number(const uint8_t *bytes, int count) {
    uint32_t value = 0;
    for (int i = count - 1; i >= 0; i--) value = value << 8 | bytes[i];
    return value;
}

// Reads a recording; on failure prints a line to stderr and returns NULL.
static float *read_wav(const char *path, uint32_t rate, size_t *count) {
    FILE *file = fopen(path, "rb");
    uint8_t head[16];
    int fits = 0;
    if (file && fread(head, 1, 12, file) == 12 && !memcmp(head, "RIFF", 4) && !memcmp(head + 8, "WAVE", 4)) {
        while (fread(head, 1, 8, file) == 8) {
            uint32_t length = number(head + 4, 4);
            if (!memcmp(head, "fmt ", 4) && length >= 16 && fread(head, 1, 16, file) == 16) {
                fits = number(head + 2, 2) == 1 && number(head + 4, 4) == rate && number(head + 14, 2) == 16;
                length -= 16;
            } else if (!memcmp(head, "data", 4) && fits) {
                uint8_t *bytes = malloc(length + 1);
                float *samples = malloc((length / 2 + 1) * sizeof *samples);
                if (bytes && samples) {
                    *count = fread(bytes, 1, length, file) / 2;
                    for (size_t i = 0; i < *count; i++) samples[i] = (int16_t)number(bytes + 2 * i, 2) / 32768.0f;
                    free(bytes);
                    fclose(file);
                    return samples;
                }
                free(bytes);
                free(samples);
                break;
            }
            if (fseek(file, (long)length + (length & 1), SEEK_CUR)) break;
        }
    }
    if (file) fclose(file);
    fprintf(stderr, "%s: not a readable WAV file of one channel, 16 bits and %u Hz\n", path, (unsigned)rate);
    return NULL;
}

static float *embed(const BregmanModel *model, const char *path) {
    size_t count = 0, size = bregman_embedding_size(model);
    float *samples = read_wav(path, bregman_sample_rate(model), &count);
    if (!samples) return NULL;
    float *embedding = malloc(size * sizeof *embedding);
    if (embedding && bregman_embed(model, samples, count, embedding, size) != BREGMAN_STATUS_OK) {
        fprintf(stderr, "%s: %s\n", path, bregman_error_message());
        free(embedding);
        embedding = NULL;
    }
    free(samples);
    return embedding;
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: %s model.breg first.wav second.wav\n", argv[0]);
        return 2;
    }
    BregmanModel *model = bregman_open(argv[1], 1);
    if (!model) {
        fprintf(stderr, "%s: %s\n", argv[1], bregman_error_message());
        return 1;
    }
    float *first = embed(model, argv[2]), *second = embed(model, argv[3]);
    int failed = !first || !second;
    if (!failed) {
        double score = 0, threshold = bregman_threshold(model);
        bregman_score(first, second, bregman_embedding_size(model), &score);
        printf("score %.6f", score);
        if (!isnan(threshold)) printf(" threshold %.6f: %s speaker", threshold, score > threshold ? "same" : "another");
        printf("\n");
    }
    free(first);
    free(second);
    bregman_close(model);
    return failed;
}
