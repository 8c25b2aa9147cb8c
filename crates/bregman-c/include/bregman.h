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

// Sound that is still arriving, with what the network has computed of it. One thread uses it at a time.
typedef struct BregmanSliding BregmanSliding;

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
// for `size` values, which must be `bregman_embedding_size`. Silence and noise have embeddings, too, which say nothing
// about a speaker: whether anybody speaks is for the caller to find out.
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

// Begins a recording whose last `window` seconds can be embedded at any time; each embedding costs what is new since
// the one before. Features lose their mean over `mean` seconds before each frame. NULL on failure.
//
// # Safety
// `model` is NULL or an open model that is closed after the result.
BregmanSliding *bregman_sliding_open(const BregmanModel *model, double window, double mean);

// Takes any number of mono samples, as `bregman_embed` does. After a failure none of them is taken.
//
// # Safety
// `sliding` is NULL or open and used by nobody else, `samples` NULL or `count` readable values.
BregmanStatus bregman_sliding_push(BregmanSliding *sliding, const float *samples, size_t count);

// Computes the embedding of the last window, or of everything where less was heard. `embedding` as in
// `bregman_embed`.
//
// # Safety
// `sliding` is NULL or open and used by nobody else, `embedding` NULL or `size` writable values.
BregmanStatus bregman_sliding_embed(BregmanSliding *sliding, float *embedding, size_t size);

// Ends a recording. NULL is allowed.
//
// # Safety
// `sliding` is NULL or comes from `bregman_sliding_open`, is not in use, and is closed only once.
void bregman_sliding_close(BregmanSliding *sliding);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* BREGMAN_H */
