/* Attention of one query at a time over cached keys and values. */

#ifndef HEEDFUL_ATTEND_H
#define HEEDFUL_ATTEND_H

#include <math.h>

#include "linear.h"
#include "program.h"
#include "vectors.h"

#ifndef __has_builtin
#define __has_builtin(x) 0
#endif

#if __has_builtin(__builtin_shufflevector) && LANES > 4
/* For lanes with bit s clear, a[lane] + a[lane + s]; for those with bit s set, b[lane] + b[lane - s]. */
#define P(lane, s) ((lane) & (s) ? LANES + ((lane) ^ (s)) : (lane))
#define Q(lane, s) ((lane) & (s) ? LANES + (lane) : ((lane) ^ (s)))
#define LOW(f, s) f(0, s), f(1, s), f(2, s), f(3, s), f(4, s), f(5, s), f(6, s), f(7, s)
#define HIGH(f, s) f(8, s), f(9, s), f(10, s), f(11, s), f(12, s), f(13, s), f(14, s), f(15, s)
#if LANES == 16
#define FOLD(a, b, s) \
    (__builtin_shufflevector(a, b, LOW(P, s), HIGH(P, s)) + __builtin_shufflevector(a, b, LOW(Q, s), HIGH(Q, s)))
#else
#define FOLD(a, b, s) (__builtin_shufflevector(a, b, LOW(P, s)) + __builtin_shufflevector(a, b, LOW(Q, s)))
#endif

/* The horizontal sums of LANES vectors, one per lane. */
INLINE Floats sums_of(Floats x[LANES]) {
#if LANES == 16
    for (int i = 0; i < 8; i++) x[i] = FOLD(x[i], x[i + 8], 8);
#endif
    for (int i = 0; i < 4; i++) x[i] = FOLD(x[i], x[i + 4], 4);
    for (int i = 0; i < 2; i++) x[i] = FOLD(x[i], x[i + 2], 2);
    return FOLD(x[0], x[1], 1);
}
#else
INLINE Floats sums_of(Floats x[LANES]) {
    Floats sums;
    for (int i = 0; i < LANES; i++) sums[i] = sum_of(x[i]);
    return sums;
}
#endif

/* Addresses of the key or value of each position. */
typedef struct {
    const float *base;       /* address for this head in line 0 */
    int64_t line, width;     /* strides between lines and between positions, in floats */
    const int32_t *lines;    /* the line of each position; NULL: `own` for all */
    int64_t own;
} Lines;

INLINE const float *at(const Lines *lines, int64_t position) {
    int64_t line = lines->lines ? lines->lines[position] : lines->own;
    return lines->base + line * lines->line + position * lines->width;
}

/* q.k for `n` positions; the rest of the last vector is set to -infinity. */
static void products(const float *q, const Lines *keys, int64_t n, float *scores) {
    for (int64_t first = 0; first < n; first += LANES) {
        int64_t here = n - first < LANES ? n - first : LANES;
        Floats parts[LANES];
        for (int j = 0; j < LANES; j++) {
            parts[j] = all(0.0f);
            if (j >= here) continue;
            const float *key = at(keys, first + j);
            for (int64_t i = 0; i < keys->width; i += LANES) parts[j] += load(q + i) * load(key + i);
        }
        Floats sums = sums_of(parts);
        store_some(scores + first, sums, here);
        for (int64_t j = here; j < LANES; j++) scores[first + j] = -INFINITY;
    }
}

/* Replace scores by exp(score - max) in place, and return their sum. */
static float weights_of(float *scores, int64_t n) {
    Floats most = all(-INFINITY), sum = all(0.0f);
    for (int64_t i = 0; i < n; i += LANES) most = larger(load(scores + i), most);
    Floats top = all(largest_of(most));
    for (int64_t i = 0; i < n; i += LANES) {
        Floats weights = exponential(load(scores + i) - top);
        store(scores + i, weights);
        sum += weights;
    }
    return sum_of(sum);
}

/* sum_p weight[p] value[p] / total, for the first `d` columns. */
INLINE void mixed(const int vectors, const float *weights, const Lines *values, int64_t n, float total,
                  int64_t first, int64_t d, float *out) {
    Floats sums[vectors];
    for (int v = 0; v < vectors; v++) sums[v] = all(0.0f);
    for (int64_t p = 0; p < n; p++) {
        const float *value = at(values, p) + first;
        Floats weight = all(weights[p]);
        for (int v = 0; v < vectors; v++) sums[v] += weight * load(value + v * LANES);
    }
    for (int v = 0; v < vectors; v++) {
        int64_t left = d - first - v * LANES;
        if (left > 0) store_some(out + first + v * LANES, sums[v] / total, left);
    }
}

static void weighted_sum(const float *weights, const Lines *values, int64_t n, float total, int64_t d, float *out) {
    int64_t first = 0;
    for (; first + 4 * LANES <= values->width; first += 4 * LANES) mixed(4, weights, values, n, total, first, d, out);
    for (; first + 2 * LANES <= values->width; first += 2 * LANES) mixed(2, weights, values, n, total, first, d, out);
    for (; first < values->width; first += LANES) mixed(1, weights, values, n, total, first, d, out);
}

/* Attend for items `begin` to `end` of all n_rows * n_heads pairs of row and head. */
static void attend(const Call *call, const Instruction *op, float *scores, int64_t begin, int64_t end) {
    const Cache *cache = &call->caches[op->cache];
    int64_t d_k = rounded(op->d_k, PADDING), d_v = rounded(op->d_v, PADDING), shared = op->n_heads / op->n_kv_heads;
    int64_t in_width = call->widths[op->in], out_width = call->widths[op->out];
    float q[d_k];
    for (int64_t i = begin; i < end; i++) {
        int64_t row = i / op->n_heads, head = i % op->n_heads, group = head / shared;
        float *out = call->buffers[op->out] + row * out_width + head * op->d_v;
        const float *query = call->buffers[op->in] + row * in_width + op->first_query + head * op->d_k;
        int64_t n = op->reads_source ? call->source_lengths[row] : call->n_visible[row];
        if (n == 0) {
            memset(out, 0, op->d_v * sizeof *out);
            continue;
        }
        memset(q, 0, sizeof q);
        for (int j = 0; j < op->d_k; j++) q[j] = query[j] * op->number;
        Lines keys = {cache->keys + group * cache->capacity * d_k, op->n_kv_heads * cache->capacity * d_k, d_k, NULL, 0};
        Lines values = {cache->values + group * cache->capacity * d_v, op->n_kv_heads * cache->capacity * d_v, d_v, NULL, 0};
        if (op->reads_source) {
            keys.own = values.own = call->sources[row];
        } else {
            keys.lines = values.lines = call->ancestors + call->sequences[row] * call->n_ancestors;
        }
        products(q, &keys, n, scores);
        float total = weights_of(scores, n);
        weighted_sum(scores, &values, n, total, op->d_v, out);
    }
}

/* Write the keys and values of rows `begin` to `end` into the cache, zero-padded to the cache widths. */
static void keep(const Call *call, const Instruction *op, int64_t begin, int64_t end) {
    const Cache *cache = &call->caches[op->cache];
    int64_t d_k = rounded(op->d_k, PADDING), d_v = rounded(op->d_v, PADDING), in_width = call->widths[op->in];
    for (int64_t row = begin; row < end; row++) {
        const float *in = call->buffers[op->in] + row * in_width;
        for (int64_t head = 0; head < op->n_kv_heads; head++) {
            int64_t line = call->cache_lines[row] * (int64_t)op->n_kv_heads + head;
            int64_t slot = line * cache->capacity + call->positions[row];
            float *key = cache->keys + slot * d_k, *value = cache->values + slot * d_v;
            memcpy(key, in + op->first_key + head * op->d_k, op->d_k * sizeof *key);
            memset(key + op->d_k, 0, (d_k - op->d_k) * sizeof *key);
            memcpy(value, in + op->first_value + head * op->d_v, op->d_v * sizeof *value);
            memset(value + op->d_v, 0, (d_v - op->d_v) * sizeof *value);
        }
    }
}

#endif
