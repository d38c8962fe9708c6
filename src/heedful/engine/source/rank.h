/* The most probable tokens of each row of logits, and their log-probabilities. */

#ifndef HEEDFUL_RANK_H
#define HEEDFUL_RANK_H

#include <math.h>

#include "vectors.h"

/* Whether any number is greater than `limit`. */
INLINE int any_greater(Floats x, float limit) {
#if defined(__AVX512F__)
    return _mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(limit), _CMP_GT_OQ) != 0;
#elif defined(__AVX2__)
    return _mm256_movemask_ps(_mm256_cmp_ps((__m256)x, _mm256_set1_ps(limit), _CMP_GT_OQ)) != 0;
#else
    Ints over = x > all(limit);
    int found = 0;
    for (int i = 0; i < LANES; i++) found |= over[i];
    return found != 0;
#endif
}

/* log sum e^x as max x (`top`) plus log sum e^(x - top) (`rest`); `rest` is NaN if there is no distribution. */
static void normaliser(const float *x, int64_t n, float *top, float *rest) {
    int64_t whole = n / LANES * LANES;
    Floats most = load_some(x + whole, n - whole, -INFINITY), sum = all(0.0f);
    for (int64_t i = 0; i < whole; i += LANES) most = larger(load(x + i), most);
    *top = largest_of(most);
    *rest = NAN;
    if (!isfinite(*top)) return;
    for (int64_t i = 0; i < whole; i += LANES) sum += exponential(load(x + i) - *top);
    float more = 0.0f; /* expf keeps NaN */
    for (int64_t i = whole; i < n; i++) more += expf(x[i] - *top);
    *rest = logf(sum_of(sum) + more);
}

INLINE int listed(int64_t id, const int64_t *ids, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (ids[i] == id) return 1;
    return 0;
}

/* The k largest numbers, largest first, ties by lowest id, without forbidden ids. Entries beyond the numbers above
   -infinity get -infinity and id 0. */
static void greatest(const float *x, int64_t n, const int64_t *forbidden, int64_t n_forbidden, int64_t k,
                     float *values, int64_t *ids) {
    for (int64_t i = 0; i < k; i++) values[i] = -INFINITY, ids[i] = 0;
    for (int64_t i = 0; i < n; i += LANES) {
        if (i + LANES <= n && !any_greater(load(x + i), values[k - 1])) continue;
        for (int64_t j = i; j < i + LANES && j < n; j++) {
            if (!(x[j] > values[k - 1]) || listed(j, forbidden, n_forbidden)) continue;
            int64_t place = k - 1;
            for (; place > 0 && x[j] > values[place - 1]; place--)
                values[place] = values[place - 1], ids[place] = ids[place - 1];
            values[place] = x[j], ids[place] = j;
        }
    }
}

/* Write the k best log-probabilities, clipped to 0, which rounding can exceed slightly; return whether the row has
   a distribution. */
static int rank_row(const float *x, int64_t n, const int64_t *forbidden, int64_t n_forbidden, int64_t k,
                    float *values, int64_t *ids) {
    float top, rest;
    normaliser(x, n, &top, &rest);
    greatest(x, n, forbidden, n_forbidden, k, values, ids);
    for (int64_t i = 0; i < k; i++) {
        float value = values[i] - top - rest;
        values[i] = value > 0.0f ? 0.0f : value;
    }
    return rest == rest;
}

#endif
