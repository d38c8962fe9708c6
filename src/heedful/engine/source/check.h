/* Bounds checks: before the first instruction runs, everything that a call reads or writes is compared with the
   sizes in program.h. */

#ifndef HEEDFUL_CHECK_H
#define HEEDFUL_CHECK_H

#include <stdint.h>

#include "linear.h"
#include "program.h"

/* Why a call is refused; the messages are in library.py. */
enum { SOUND, BAD_CALL, BAD_OPERATION, BAD_COLUMNS, BAD_WEIGHTS, BAD_CACHE, BAD_SCRATCH, BAD_ID, BAD_POSITION, BAD_LINE, BAD_LENGTH };

enum { MOST_THREADS = 1024, MOST_BUFFERS = 64, WIDEST_KEY = 16384 };

typedef struct {
    int64_t least, most;
} Range;

static const Range NOTHING = {INT64_MAX, INT64_MIN};

static Range both(Range a, Range b) {
    return (Range){a.least < b.least ? a.least : b.least, a.most > b.most ? a.most : b.most};
}

static Range range_of(const int32_t *x, int64_t n) {
    int32_t least = INT32_MAX, most = INT32_MIN;
    for (int64_t i = 0; i < n; i++) {
        least = x[i] < least ? x[i] : least;
        most = x[i] > most ? x[i] : most;
    }
    return n > 0 ? (Range){least, most} : NOTHING;
}

/* Whether all numbers are at least 0 and less than n. */
INLINE int below(Range range, int64_t n) { return range.least > range.most || (range.least >= 0 && range.most < n); }

/* a * b * c * d; INT64_MAX if it overflows or a factor is negative. */
static int64_t size_of(int64_t a, int64_t b, int64_t c, int64_t d) {
    int64_t size;
    if (a < 0 || b < 0 || c < 0 || d < 0 || __builtin_mul_overflow(a, b, &size) ||
        __builtin_mul_overflow(size, c, &size) || __builtin_mul_overflow(size, d, &size))
        return INT64_MAX;
    return size;
}

INLINE int holds(const void *memory, int64_t bytes, int64_t wanted) { return memory && wanted <= bytes; }

/* Ranges of the row arrays that an instruction reads. */
typedef struct {
    Range ids, positions, cache_lines, n_visible, lines, sources, lengths; /* lines: of the visible ancestors */
} Rows;

/* Measure the cache lines that the rows read of their own sequences. */
static int measure_own(const Call *call, Rows *rows) {
    if (!call->sequences || !call->n_visible || !call->ancestors) return BAD_CALL;
    if (!below(range_of(call->sequences, call->n_rows), call->n_sequences)) return BAD_LINE;
    rows->n_visible = range_of(call->n_visible, call->n_rows);
    if (call->n_ancestors < 0 || !below(rows->n_visible, call->n_ancestors + 1)) return BAD_LENGTH;
    for (int64_t row = 0; row < call->n_rows; row++)
        rows->lines = both(
            rows->lines, range_of(call->ancestors + call->sequences[row] * call->n_ancestors, call->n_visible[row]));
    return SOUND;
}

static int measure(const Call *call, Rows *rows) {
    int ids = 0, stores = 0, own = 0, source = 0;
    for (int64_t i = 0; i < call->n_instructions; i++) {
        const Instruction *op = &call->program[i];
        ids |= op->op == EMBED;
        stores |= op->op == STORE;
        own |= op->op == ATTEND && !op->reads_source;
        source |= op->op == ATTEND && op->reads_source;
    }
    if (ids || stores) {
        if (!call->positions) return BAD_CALL;
        rows->positions = range_of(call->positions, call->n_rows);
    }
    if (ids) {
        if (!call->ids) return BAD_CALL;
        for (int64_t row = 0; row < call->n_rows; row++)
            rows->ids = both(rows->ids, (Range){call->ids[row], call->ids[row]});
    }
    if (stores) {
        if (!call->cache_lines) return BAD_CALL;
        rows->cache_lines = range_of(call->cache_lines, call->n_rows);
    }
    if (source) {
        if (!call->sources || !call->source_lengths) return BAD_CALL;
        rows->sources = range_of(call->sources, call->n_rows);
        rows->lengths = range_of(call->source_lengths, call->n_rows);
    }
    return own ? measure_own(call, rows) : SOUND;
}

/* Whether the buffer contains `n` columns starting at `first`. */
INLINE int columns(const Call *call, int64_t buffer, int64_t first, int64_t n) {
    return buffer >= 0 && buffer < call->n_buffers && first >= 0 && n >= 1 && n <= call->widths[buffer] - first;
}

static int check_embed(const Call *call, const Instruction *op, const Rows *rows) {
    int64_t width = op->beside ? (int64_t)op->n_out - op->n_in : op->n_out;
    if (op->n_in < 1 || (op->beside ? width < 0 : op->n_out != op->n_in)) return BAD_COLUMNS;
    if (!columns(call, op->out, 0, op->n_out)) return BAD_COLUMNS;
    if (!op->weights || !op->bias) return BAD_WEIGHTS;
    if (!below(rows->ids, op->n_weights / (4 * (int64_t)op->n_in))) return BAD_ID;
    return width == 0 || below(rows->positions, op->n_bias / (4 * width)) ? SOUND : BAD_POSITION;
}

static int check_linear(const Call *call, const Instruction *op) {
    if (op->kind < FP32 || op->kind > INT8 || op->activation < NO_ACTIVATION || op->activation > SILU)
        return BAD_OPERATION;
    if (!columns(call, op->in, 0, op->n_in) || !columns(call, op->out, 0, op->n_out)) return BAD_COLUMNS;
    if (op->add != -1 && !columns(call, op->add, 0, op->n_out)) return BAD_COLUMNS;
    int64_t n_in = rounded(op->n_in, 4), n_out = rounded(op->n_out, PANEL), each = 4 * (int64_t)op->n_out;
    if (!holds(op->weights, op->n_weights, size_of(n_out, n_in, op->kind == FP32 ? 4 : op->kind == BF16 ? 2 : 1, 1)))
        return BAD_WEIGHTS;
    if (op->bias && op->n_bias < each) return BAD_WEIGHTS;
    if (op->kind == INT8 && !(holds(op->scales, op->n_scales, each) && holds(op->sums, op->n_sums, 4 * n_out)))
        return BAD_WEIGHTS;
    return call->converted && call->row_scales && n_in <= call->n_converted ? SOUND : BAD_SCRATCH;
}

static int check_features(const Call *call, const Instruction *op) {
    int64_t bytes = 4 * (int64_t)op->n_in, bare = op->op == NORM; /* weights of a norm are optional */
    if (!columns(call, op->in, 0, op->n_in) || !columns(call, op->out, 0, op->n_in)) return BAD_COLUMNS;
    if (op->weights ? op->n_weights < bytes : !bare) return BAD_WEIGHTS;
    return (op->bias ? op->n_bias < bytes : !bare) ? BAD_WEIGHTS : SOUND;
}

static int check_cache(const Call *call, const Instruction *op) {
    if (op->n_kv_heads < 1 || op->d_k < 1 || op->d_v < 1 || op->d_k > WIDEST_KEY) return BAD_COLUMNS;
    if (!call->caches || op->cache < 0 || op->cache >= call->n_caches) return BAD_CACHE;
    const Cache *cache = &call->caches[op->cache];
    if (cache->lines < 0 || cache->capacity < 0) return BAD_CACHE;
    int64_t slots = size_of(cache->lines, op->n_kv_heads, cache->capacity, 4);
    int64_t keys = size_of(slots, rounded(op->d_k, PADDING), 1, 1);
    int64_t values = size_of(slots, rounded(op->d_v, PADDING), 1, 1);
    return holds(cache->keys, cache->n_keys, keys) && holds(cache->values, cache->n_values, values) ? SOUND : BAD_CACHE;
}

static int check_store(const Call *call, const Instruction *op, const Rows *rows) {
    int wrong = check_cache(call, op);
    if (wrong) return wrong;
    const Cache *cache = &call->caches[op->cache];
    if (!columns(call, op->in, op->first_key, op->n_kv_heads * (int64_t)op->d_k)) return BAD_COLUMNS;
    if (!columns(call, op->in, op->first_value, op->n_kv_heads * (int64_t)op->d_v)) return BAD_COLUMNS;
    if (!below(rows->cache_lines, cache->lines)) return BAD_LINE;
    return below(rows->positions, cache->capacity) ? SOUND : BAD_POSITION;
}

static int check_attend(const Call *call, const Instruction *op, const Rows *rows) {
    int wrong = check_cache(call, op);
    if (wrong) return wrong;
    const Cache *cache = &call->caches[op->cache];
    Range lines = op->reads_source ? rows->sources : rows->lines;
    Range lengths = op->reads_source ? rows->lengths : rows->n_visible;
    if (op->n_heads < 1 || op->n_heads % op->n_kv_heads) return BAD_COLUMNS;
    if (!columns(call, op->in, op->first_query, op->n_heads * (int64_t)op->d_k)) return BAD_COLUMNS;
    if (!columns(call, op->out, 0, op->n_heads * (int64_t)op->d_v)) return BAD_COLUMNS;
    if (!below(lines, cache->lines)) return BAD_LINE;
    if (lengths.least < 0 || lengths.most > cache->capacity) return BAD_LENGTH;
    return call->scores && rounded(lengths.most, PADDING) <= call->n_scores ? SOUND : BAD_SCRATCH;
}

static int check_instruction(const Call *call, const Instruction *op, const Rows *rows) {
    if (op->op == EMBED) return check_embed(call, op, rows);
    if (op->op == LINEAR) return check_linear(call, op);
    if (op->op == NORM || op->op == AFFINE) return check_features(call, op);
    if (op->op == STORE) return check_store(call, op, rows);
    if (op->op == ATTEND) return check_attend(call, op, rows);
    return BAD_OPERATION;
}

/* Return 0, or reason + 256 * index of the refused instruction. */
static int64_t check(const Call *call) {
    Rows rows = {NOTHING, NOTHING, NOTHING, NOTHING, NOTHING, NOTHING, NOTHING};
    int wrong;
    if (call->n_rows < 0 || call->n_rows > call->n_lines || call->n_instructions < 0) return BAD_CALL;
    if (call->n_threads < 1 || call->n_threads > MOST_THREADS || call->n_threads > call->most_threads) return BAD_CALL;
    if (call->n_buffers < 1 || call->n_buffers > MOST_BUFFERS || !call->buffers || !call->widths) return BAD_CALL;
    if (call->n_instructions && !call->program) return BAD_CALL;
    if (call->n_converted < 0 || call->n_scores < 0) return BAD_CALL; /* used as factors even if the buffers are NULL */
    for (int64_t i = 0; i < call->n_buffers; i++)
        if (!call->buffers[i] || call->widths[i] < 1) return BAD_CALL;
    if (call->n_rows == 0) return SOUND; /* nothing is read */
    if ((wrong = measure(call, &rows))) return wrong;
    for (int64_t i = 0; i < call->n_instructions; i++)
        if ((wrong = check_instruction(call, &call->program[i], &rows))) return wrong + 256 * i;
    return SOUND;
}

#endif
