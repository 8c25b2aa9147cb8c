// Speaker embeddings from a model file (`bregman export RUN -o model.breg`).
//
// Every function may be called from any thread, and several threads may use one model at a time, but not while it is
// being closed. An unexpected NULL is an error, never a crash.
//
// Generated from crates/bregman-c by cbindgen: do not edit.

#ifndef BREGMAN_H
#define BREGMAN_H

#include <stddef.h>
#include <stdint.h>

// The result of a call. `bregman_error_message()` returns the reason of a failure.
typedef enum {
  // Success.
  BREGMAN_STATUS_OK = 0,
  // An invalid pointer or length.
  BREGMAN_STATUS_ARGUMENT = 1,
  // A file that cannot be read.
  BREGMAN_STATUS_FILE = 2,
  // A file that is not a model, is corrupt, or needs a newer library.
  BREGMAN_STATUS_FORMAT = 3,
  // Audio that is too short, or not finite.
  BREGMAN_STATUS_AUDIO = 4,
  // Any other failure, such as threads that cannot be started.
  BREGMAN_STATUS_INTERNAL = 5,
} BregmanStatus;

// An open model.
typedef struct BregmanModel BregmanModel;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Opens a model file. `threads` is the number of threads per utterance; 0 means all cores. NULL on failure.
//
// # Safety
// `path` is NULL or a C string.
BregmanModel *bregman_open(const char *path, size_t threads);

// Opens a model from the bytes of its file, which may be freed afterwards. `threads` as in `bregman_open`. NULL on
// failure.
//
// # Safety
// `bytes` is NULL or points to `length` bytes.
BregmanModel *bregman_open_bytes(const uint8_t *bytes, size_t length, size_t threads);

// Frees a model. NULL is allowed.
//
// # Safety
// `model` is NULL or comes from an open function, is not in use, and is closed only once.
void bregman_close(BregmanModel *model);

// Number of values in an embedding; 0 if `model` is NULL.
//
// # Safety
// `model` is NULL or an open model.
size_t bregman_embedding_size(const BregmanModel *model);

// Sampling rate of the model's input; 0 if `model` is NULL.
//
// # Safety
// `model` is NULL or an open model.
uint32_t bregman_sample_rate(const BregmanModel *model);

// Smallest number of samples that can be embedded; 0 if `model` is NULL.
//
// # Safety
// `model` is NULL or an open model.
size_t bregman_shortest(const BregmanModel *model);

// Two recordings with a score above this threshold count as the same speaker; NaN if the model was exported without
// trials, or is NULL.
//
// # Safety
// `model` is NULL or an open model.
double bregman_threshold(const BregmanModel *model);

// Computes the embedding of mono samples, nominally from -1 to 1, at the model's sampling rate. `embedding` has room
// for `size` values, which must be `bregman_embedding_size`.
//
// # Safety
// `model` is NULL or an open model, `samples` NULL or `count` readable values, `embedding` NULL or `size` writable
// ones.
BregmanStatus bregman_embed(const BregmanModel *model,
                            const float *samples,
                            size_t count,
                            float *embedding,
                            size_t size);

// The score of two embeddings of `size` values: their cosine, from -1 to 1.
//
// # Safety
// `first` and `second` are NULL or `size` readable values, `score` NULL or a writable one.
BregmanStatus bregman_score(const float *first, const float *second, size_t size, double *score);

// The library's version.
const char *bregman_version(void);

// The reason of the last failure on this thread, one sentence; empty if there was none. Valid until the next failure
// on this thread.
const char *bregman_error_message(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* BREGMAN_H */
