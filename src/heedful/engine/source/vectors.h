/* SIMD vectors of the width of the processor's registers: gcc keeps parts of wider vectors in memory. */

#ifndef HEEDFUL_VECTORS_H
#define HEEDFUL_VECTORS_H

#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX2__)
#define LANES 8
#else
#define LANES 4
#endif

typedef float Floats __attribute__((vector_size(4 * LANES)));
typedef int32_t Ints __attribute__((vector_size(4 * LANES)));
typedef uint32_t Words __attribute__((vector_size(4 * LANES)));

#define INLINE static inline __attribute__((always_inline))

/* Unaligned loads and stores. */
INLINE Floats load(const float *p) {
    Floats x;
    memcpy(&x, p, sizeof x);
    return x;
}

INLINE void store(float *p, Floats x) { memcpy(p, &x, sizeof x); }

INLINE Ints load_ints(const void *p) {
    Ints x;
    memcpy(&x, p, sizeof x);
    return x;
}

INLINE Floats all(float x) { return x - (Floats){0}; }

INLINE Floats select_floats(Ints mask, Floats yes, Floats no) {
    return (Floats)(((Ints)yes & mask) | ((Ints)no & ~mask));
}

/* a if a > b, else b, also if either is NaN. */
INLINE Floats larger(Floats a, Floats b) {
#if defined(__AVX512F__)
    return (Floats)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
    return (Floats)_mm256_max_ps((__m256)a, (__m256)b);
#else
    return select_floats(a > b, a, b);
#endif
}

INLINE float sum_of(Floats x) {
    float part[LANES];
    store(part, x);
    for (int width = LANES / 2; width; width /= 2)
        for (int i = 0; i < width; i++) part[i] += part[i + width];
    return part[0];
}

INLINE float largest_of(Floats x) {
    float most = x[0];
    for (int i = 1; i < LANES; i++) most = x[i] > most ? x[i] : most;
    return most;
}

/* Load the first `n` numbers at `p`, and fill the remaining lanes with `other`. */
INLINE Floats load_some(const float *p, int64_t n, float other) {
    Floats x = all(other);
    if (n >= LANES) return load(p);
    for (int i = 0; i < n; i++) x[i] = p[i];
    return x;
}

INLINE void store_some(float *p, Floats x, int64_t n) {
    if (n >= LANES) {
        store(p, x);
    } else {
        for (int i = 0; i < n; i++) p[i] = x[i];
    }
}

/* e^x for x <= 88, accurate to about 1 ulp: x = n ln 2 + r with |r| <= ln 2 / 2, and a polynomial for e^r. Below
   -87, the result is e^-87, negligible beside the 1 that a softmax contains. NaN stays NaN. */
INLINE Floats exponential(Floats x) {
    const Floats magic = all(12582912.0f);
    x = larger(all(-87.0f), x);
    Floats shifted = x * 1.44269504f + magic; /* the nearest integer, in the low bits */
    Floats n = shifted - magic;
    Floats r = x - n * 0.693359375f + n * 2.12194440e-4f;
    /* Taylor series to r^7: the remainder is below 3e-9 for |r| <= 0.347. */
    Floats p = all(1.0f / 5040);
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    return p * (Floats)(((Ints)shifted - 0x4b400000 + 127) << 23);
}

#endif
