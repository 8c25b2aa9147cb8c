// Speaker embeddings from a model file (`bregman export RUN -o model.breg`).
//
// Every function may be called from any thread, and one model from several at a time; nobody may use a model that is being
// closed. NULL where something is expected is an error, never a crash.
//
// Made from crates/bregman-c by cbindgen: do not edit.

#ifndef BREGMAN_H
#define BREGMAN_H

#include <stddef.h>
#include <stdint.h>

// What became of a call. The reason of a failure is `bregman_error_message()`.
typedef enum {
  // It worked.
  BREGMAN_STATUS_OK = 0,
  // A pointer or a length that cannot be.
  BREGMAN_STATUS_ARGUMENT = 1,
  // A file that cannot be read.
  BREGMAN_STATUS_FILE = 2,
  // A file that is no model, was altered, or needs a newer library.
  BREGMAN_STATUS_FORMAT = 3,
  // Audio that is too short, or not finite.
  BREGMAN_STATUS_AUDIO = 4,
  // Anything else, such as threads that cannot be started.
  BREGMAN_STATUS_INTERNAL = 5,
} BregmanStatus;

// An open model.
typedef struct BregmanModel BregmanModel;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Opens a model file. `threads` work on one utterance; 0 stands for every core. NULL on failure.
//
// # Safety
// `path` is NULL or a C string.
BregmanModel *bregman_open(const char *path, size_t threads);

// Opens a model from the bytes of its file, which may be freed afterwards. `threads` as for `bregman_open`. NULL on
// failure.
//
// # Safety
// `bytes` is NULL or points to `length` bytes.
BregmanModel *bregman_open_bytes(const uint8_t *bytes, size_t length, size_t threads);

// Frees a model. NULL is fine.
//
// # Safety
// `model` is NULL or comes from an open function, nobody uses it any more, and it is closed once.
void bregman_close(BregmanModel *model);

// Values of an embedding; 0 if `model` is NULL.
//
// # Safety
// `model` is NULL or an open model.
size_t bregman_embedding_size(const BregmanModel *model);

// Samples per second of the audio that the model takes; 0 if `model` is NULL.
//
// # Safety
// `model` is NULL or an open model.
uint32_t bregman_sample_rate(const BregmanModel *model);

// The fewest samples that have an embedding; 0 if `model` is NULL.
//
// # Safety
// `model` is NULL or an open model.
size_t bregman_shortest(const BregmanModel *model);

// The score above which two recordings are of one speaker; NaN if the model was exported without trials, or is NULL.
//
// # Safety
// `model` is NULL or an open model.
double bregman_threshold(const BregmanModel *model);

// Computes the embedding of mono samples, nominally from -1 to 1, at the model's rate, into `size` values, which is
// `bregman_embedding_size`.
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

// Why the last call that failed on this thread did: one sentence, empty if none has. Valid until the next failure on
// this thread.
const char *bregman_error_message(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* BREGMAN_H */
