/* What a program is made of. The Python side mirrors these structures (library.py). */

#ifndef HEEDFUL_PROGRAM_H
#define HEEDFUL_PROGRAM_H

#include <stdint.h>

enum { EMBED, LINEAR, NORM, AFFINE, STORE, ATTEND };
enum { FP32, BF16, INT8 };
enum { NO_ACTIVATION, RELU, GELU, GELU_TANH };

/* One instruction: from buffer `in` to buffer `out`. A buffer holds one line for each row. */
typedef struct {
    int32_t op, in, out, add;          /* add: a buffer that is added to the result; -1 for none */
    int32_t n_in, n_out;               /* widths of what is read and written */
    int32_t kind, activation;          /* of a product: type of the weights, and what follows */
    const void *weights;               /* packed matrix; embedding table; gamma; scale */
    const float *bias;                 /* bias; beta; shift; table of positions */
    const float *scales;               /* int8: of each output */
    const int32_t *sums;               /* int8: -128 times the sum of each output's weights */
    int64_t n_weights, n_bias, n_scales, n_sums; /* bytes of each */
    int32_t cache;                     /* of STORE and ATTEND: which */
    int32_t reads_source;              /* ATTEND: the keys are the source's, not the row's own */
    int32_t first_query;               /* ATTEND: column of the first query in `in` */
    int32_t first_key, first_value;    /* STORE: columns */
    int32_t n_heads, n_kv_heads, d_k, d_v;
    int32_t beside;                    /* EMBED: positions are put beside the embedding, not added */
    float number;                      /* scale of scores or embeddings; epsilon of a norm */
} Instruction;

/* To a multiple of this, widths of keys and values are filled with zeros: whole vectors on every chip. */
enum { PADDING = 16 };

/* Keys [rows, heads, capacity, d_k'] and values [rows, heads, capacity, d_v'], with padded widths. */
typedef struct {
    float *keys, *values;
    int64_t capacity, lines;
    int64_t n_keys, n_values;          /* bytes of each */
} Cache;

/* One run of a program over `n_rows` rows: a row is one token of one sequence. */
typedef struct {
    const Instruction *program;
    int64_t n_instructions, n_rows, n_threads, n_buffers;
    int64_t linked;                    /* whether rows may see what other rows of this run write */
    float *const *buffers;
    const int64_t *widths;             /* of the buffers */
    int64_t n_lines;                   /* of each buffer: as many rows there can be */
    const Cache *caches;
    int64_t n_caches;
    const int64_t *ids;
    const int32_t *positions;          /* of each row in its sequence */
    const int32_t *places;             /* the line of the caches that each row writes */
    const int32_t *sequences;          /* the line of `ancestors` that each row reads */
    const int32_t *seen;               /* how many positions of its own sequence it sees */
    const int32_t *ancestors;          /* [sequences, n_ancestors]: the line that holds each position */
    int64_t n_sequences, n_ancestors;
    const int32_t *sources;            /* the line of the source's caches that each row reads */
    const int32_t *source_lengths;     /* how many positions that line has, for each row */
    int64_t most_threads;              /* for so many threads there is room in what follows */
    uint32_t *converted;               /* [max(n_lines, 4 most_threads), n_converted]: activations in the type of the weights */
    int64_t n_converted;
    float *row_scales;                 /* int8: of each line of `converted` */
    float *scores;                     /* [most_threads, n_scores] */
    int64_t n_scores;
} Call;

#endif
