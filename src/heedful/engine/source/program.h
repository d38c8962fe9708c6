/* Structures of programs, caches and calls. library.py mirrors them. */

#ifndef HEEDFUL_PROGRAM_H
#define HEEDFUL_PROGRAM_H

#include <stdint.h>

enum { EMBED, LINEAR, NORM, AFFINE, STORE, ATTEND };
enum { FP32, BF16, INT8 };
enum { NO_ACTIVATION, RELU, GELU, GELU_TANH, SILU };

/* One instruction: reads buffer `in` and writes buffer `out`. A buffer has one line per row. */
typedef struct {
    int32_t op, in, out, add;          /* add: buffer to add to the result; -1: none */
    int32_t n_in, n_out;               /* input and output widths */
    int32_t kind, activation;          /* LINEAR: type of the weights, activation of the result */
    const void *weights;               /* packed matrix; embedding table; gamma; scale */
    const float *bias;                 /* bias; beta; shift; table of positions */
    const float *scales;               /* int8: scale of each output */
    const int32_t *sums;               /* int8: -128 times the sum of each output's weights */
    int64_t n_weights, n_bias, n_scales, n_sums; /* size of each in bytes */
    int32_t cache;                     /* STORE and ATTEND: index of the cache */
    int32_t reads_source;              /* ATTEND: attend to the source instead of the row's own sequence */
    int32_t first_query;               /* ATTEND: column of the first query in `in` */
    int32_t first_key, first_value;    /* STORE: columns */
    int32_t n_heads, n_kv_heads, d_k, d_v;
    int32_t beside;                    /* EMBED: concatenate positions to the embedding instead of adding them */
    float number;                      /* scale of scores or embeddings; epsilon of a norm */
} Instruction;

/* Widths of keys and values are zero-padded to a multiple of this: whole vectors on every processor. */
enum { PADDING = 16 };

/* Keys [rows, heads, capacity, d_k'] and values [rows, heads, capacity, d_v'], with padded widths. */
typedef struct {
    float *keys, *values;
    int64_t capacity, lines;
    int64_t n_keys, n_values;          /* size of each in bytes */
} Cache;

/* One run of a program over `n_rows` rows: a row is one token of one sequence. */
typedef struct {
    const Instruction *program;
    int64_t n_instructions, n_rows, n_threads, n_buffers;
    int64_t linked;                    /* whether rows may read cache entries that other rows of this run write */
    float *const *buffers;
    const int64_t *widths;             /* of the buffers */
    int64_t n_lines;                   /* lines of each buffer: the maximum number of rows */
    const Cache *caches;
    int64_t n_caches;
    const int64_t *ids;
    const int32_t *positions;          /* position of each row in its sequence */
    const int32_t *cache_lines;        /* the line of the caches that each row writes */
    const int32_t *sequences;          /* the line of `ancestors` that each row reads */
    const int32_t *n_visible;          /* number of visible positions of its own sequence */
    const int32_t *ancestors;          /* [sequences, n_ancestors]: the cache line of each position */
    int64_t n_sequences, n_ancestors;
    const int32_t *sources;            /* the line of the source's caches that each row reads */
    const int32_t *source_lengths;     /* number of positions in that line, for each row */
    int64_t most_threads;              /* number of threads for which the following buffers are allocated */
    uint32_t *converted;               /* [max(n_lines, 4 most_threads), n_converted]: activations in the type of the weights */
    int64_t n_converted;
    float *row_scales;                 /* int8: scale of each line of `converted` */
    float *scores;                     /* [most_threads, n_scores] */
    int64_t n_scores;
} Call;

#endif
