/* y = f(x W' + b) + a for few or many rows, with packed weights.

   W is [n_out, n_in]. It is packed in panels of 32 outputs, and within a panel by inputs: 1 (fp32), 2 (bf16)
   or 4 (int8) neighbouring inputs of one output are adjacent, followed by those of the next output. The
   innermost loop therefore reads weights sequentially for any number of rows. n_in is zero-padded to a
   multiple of 4, n_out to a multiple of 32.

   The result of a row is bit for bit independent of the other rows: every sum runs over the inputs in order. */

#ifndef HEEDFUL_LINEAR_H
#define HEEDFUL_LINEAR_H

#include <math.h>

#include "program.h"
#include "vectors.h"

enum { PANEL = 32, VECTORS = PANEL / LANES }; /* vectors per panel */

#if defined(__AVX512F__)
enum { MOST_ROWS = 12, PANELS_OF_ONE = 4 }; /* 24 sums, 2 weights and 1 input: 27 of 32 registers */
#elif defined(__AVX2__)
enum { MOST_ROWS = 2, PANELS_OF_ONE = 2 }; /* 8 sums, 4 weights and 1 input: 13 of 16 */
#else
enum { MOST_ROWS = 2, PANELS_OF_ONE = 1 };
#endif

INLINE int64_t rounded(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

INLINE uint16_t to_bf16(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)((bits >> 16) | 0x40); /* NaN stays NaN */
    return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);                /* to the nearest, ties to even */
}

/* --- Inputs ----------------------------------------------------------------------------------------------

   Rows are grouped into blocks of 12, 8, 4, 2 and 1. The inputs of a block are stored as 4-byte words: one fp32,
   two bf16 or four int8 numbers. The first words of all its rows come first, then all second words, and so on,
   so the innermost loop reads them sequentially too. */

#if defined(__AVX512BF16__)
#define BF16_PRODUCTS 1
#else
#define BF16_PRODUCTS 0 /* weights are converted to 32 bits instead, and inputs are not converted */
#endif
/* int8 by int8 into 32 bits. AVX-512 has one instruction for it, with unsigned inputs, so they are shifted by 128.
   AVX2 needs four, and applies the input's sign to the weight. */
#if defined(__AVX512VNNI__)
#define INT8_PRODUCTS 1
enum { SHIFT = 128 };
#elif defined(__AVX2__)
#define INT8_PRODUCTS 1
enum { SHIFT = 0 };
#else
#define INT8_PRODUCTS 0 /* weights are converted to 32 bits */
enum { SHIFT = 0 };
#endif

/* Numbers per word of inputs. */
INLINE int together(int kind) { return kind == BF16 && BF16_PRODUCTS ? 2 : kind == INT8 && INT8_PRODUCTS ? 4 : 1; }

INLINE int64_t words_of(int kind, int64_t n_in) { return rounded(n_in, 4) / together(kind); }

/* The size of the block that begins at `row`. Two blocks of 8 are faster than 12 and 4. */
INLINE int64_t block_of(int64_t row, int64_t n_rows) {
    int64_t left = n_rows - row;
    if (MOST_ROWS == 12 && left >= 12 && left != 16) return 12;
    if (MOST_ROWS == 12 && left >= 8) return 8;
    if (MOST_ROWS == 12 && left >= 4) return 4;
    return left >= 2 ? 2 : 1;
}

static void words_bf16(const float *x, uint32_t *words, int64_t step, int64_t n) {
    int64_t i = 0;
#if BF16_PRODUCTS
    for (; i + LANES <= n; i += LANES) {
        __m256bh part = _mm512_cvtneps_pbh(_mm512_loadu_ps(x + i));
        uint32_t pairs[LANES / 2];
        memcpy(pairs, &part, sizeof part);
        for (int j = 0; j < LANES / 2; j++) words[(i / 2 + j) * step] = pairs[j];
    }
#endif
    for (; i < rounded(n, 4); i += 2) {
        uint32_t low = i < n ? to_bf16(x[i]) : 0, high = i + 1 < n ? to_bf16(x[i + 1]) : 0;
        words[i / 2 * step] = low | high << 16;
    }
}

/* round(127 x / max |x|) + SHIFT, four per word; return the scale max |x| / 127. */
static float words_int8(const float *x, uint32_t *words, int64_t step, int64_t n) {
    Floats most = all(0.0f), wrong = all(0.0f);
    for (int64_t i = 0; i < n; i += LANES) {
        Floats part = load_some(x + i, n - i, 0.0f);
        most = larger((Floats)((Ints)part & 0x7fffffff), most);
        wrong += part - part; /* NaN if x is not finite, to propagate it to the result */
    }
    float top = largest_of(most), up = top > 0.0f ? 127.0f / top : 0.0f;
    for (int64_t i = 0; i < n; i += LANES) {
        Floats part = load_some(x + i, n - i, 0.0f) * up + 12582912.0f; /* to the nearest, ties to even */
        Ints q = (Ints)part - 0x4b400000 + SHIFT;
        for (int j = 0; j < LANES && i + j < rounded(n, 4); j += 4) {
            Words u = (Words)q & 0xff;
            words[(i + j) / 4 * step] = u[j] | u[j + 1] << 8 | u[j + 2] << 16 | u[j + 3] << 24;
        }
    }
    return top / 127.0f + sum_of(wrong);
}

/* Convert row `row` of `n_rows`, stored at `x`, and write it to its position in `words`. */
static void convert_row(int kind, const float *x, int64_t n_in, uint32_t *words, float *scales, int64_t row,
                        int64_t n_rows) {
    int64_t first = 0, size;
    for (; row >= first + (size = block_of(first, n_rows)); first += size) {}
    uint32_t *place = words + first * words_of(kind, n_in) + (row - first);
    if (together(kind) == 4) {
        scales[row] = words_int8(x, place, size, n_in);
    } else if (together(kind) == 2) {
        words_bf16(x, place, size, n_in);
    } else {
        for (int64_t i = 0; i < n_in; i++) memcpy(place + i * size, x + i, sizeof *x);
    }
}

/* --- The innermost loops: `rows` x (`panels` * 32) sums -------------------------------------------------- */

/* Of constant size, so that the compiler keeps them in registers. */
#define SUMS(type) type sums[MOST_ROWS][2 * VECTORS > 8 ? 2 * VECTORS : 8]
#define EACH_ROW _Pragma("GCC unroll 12") for (int r = 0; r < rows; r++)
#define EACH_VECTOR _Pragma("GCC unroll 8") for (int v = 0; v < VECTORS * panels; v++)
/* Vector v of the weights of word k; word k of the inputs of row r. */
#define WEIGHTS(size) ((const char *)w + (v / VECTORS) * stride + (k * VECTORS + v % VECTORS) * (size) * LANES)
#define WORD (x + k * rows + r)

/* Operations after the sums: scale, bias, activation and addition. */
typedef struct {
    const Instruction *op;
    float *out;
    const float *add;
    const float *row_scales; /* NULL: rows are not scaled */
    int64_t out_width, add_width;
} Ending;

static Floats activated(Floats x, int activation) {
    if (activation == RELU) return select_floats(x < 0.0f, all(0.0f), x);
    if (activation == GELU) {
        for (int i = 0; i < LANES; i++) x[i] *= 0.5f * (1.0f + erff(x[i] * 0.70710678f));
    } else if (activation == GELU_TANH) {
        /* With tanh z = 1 - 2 / (e^2z + 1). */
        Floats twice = 1.59576912f * (x + 0.044715f * x * x * x);
        twice = select_floats(twice > 80.0f, all(80.0f), twice);
        x = x - x / (exponential(twice) + 1.0f);
    } else if (activation == SILU) {
        /* x sigmoid(x) = x / (1 + e^-x). */
        Floats minus = select_floats(x < -80.0f, all(80.0f), -x);
        x = x / (exponential(minus) + 1.0f);
    }
    return x;
}

/* Apply scale, bias, activation and addition to `rows` x `columns` sums. */
static __attribute__((noinline)) void finish(const Ending *end, const float *sums, int rows, int columns,
                                             int64_t row, int64_t column) {
    const Instruction *op = end->op;
    for (int r = 0; r < rows; r++) {
        float row_scale = end->row_scales ? end->row_scales[row + r] : 1.0f;
        for (int c = 0; c < columns; c += LANES) {
            int64_t at = column + c, left = op->n_out - at;
            if (left <= 0) break;
            Floats x = load(sums + r * columns + c);
            if (op->kind == INT8) x *= row_scale * load_some(op->scales + at, left, 0.0f);
            if (op->bias) x += load_some(op->bias + at, left, 0.0f);
            if (op->activation) x = activated(x, op->activation);
            if (end->add) x += load_some(end->add + (row + r) * end->add_width + at, left, 0.0f);
            store_some(end->out + (row + r) * end->out_width + at, x, left);
        }
    }
}

#define FINISH(value)                                                              \
    float result[12 * PANEL];                                                      \
    EACH_ROW EACH_VECTOR store(result + (VECTORS * panels * r + v) * LANES, value); \
    finish(end, result, rows, panels * PANEL, row, column)

INLINE Floats input_of(const uint32_t *word) {
    float x;
    memcpy(&x, word, sizeof x);
    return all(x);
}

INLINE void tile_fp32(const int rows, const int panels, const uint32_t *x, const void *w, int64_t n_in,
                      const Ending *end, int64_t row, int64_t column) {
    SUMS(Floats);
    int64_t stride = rounded(n_in, 4) * PANEL * 4;
    EACH_ROW EACH_VECTOR sums[r][v] = all(0.0f);
    for (int64_t k = 0; k < n_in; k++) {
        Floats weights[8];
        EACH_VECTOR weights[v] = load((const float *)WEIGHTS(4));
        EACH_ROW {
            Floats input = input_of(WORD);
            EACH_VECTOR sums[r][v] += input * weights[v];
        }
    }
    FINISH(sums[r][v]);
}

INLINE void tile_bf16(const int rows, const int panels, const uint32_t *x, const void *w, int64_t n_in,
                      const Ending *end, int64_t row, int64_t column) {
    int64_t stride = rounded(n_in, 4) * PANEL * 2;
#if BF16_PRODUCTS
    SUMS(__m512);
    EACH_ROW EACH_VECTOR sums[r][v] = _mm512_setzero_ps();
    for (int64_t k = 0; k < words_of(BF16, n_in); k++) {
        __m512bh weights[8];
        EACH_VECTOR weights[v] = (__m512bh)_mm512_loadu_si512(WEIGHTS(4));
        EACH_ROW {
            __m512bh input = (__m512bh)_mm512_set1_epi32((int32_t)*WORD);
            EACH_VECTOR sums[r][v] = _mm512_dpbf16_ps(sums[r][v], input, weights[v]);
        }
    }
#else
    SUMS(Floats);
    EACH_ROW EACH_VECTOR sums[r][v] = all(0.0f);
    for (int64_t k2 = 0; k2 < n_in; k2 += 2) {
        for (int64_t k = k2; k < k2 + 2 && k < n_in; k++) {
            const char *pairs = (const char *)w + k2 * PANEL * 2;
            EACH_VECTOR {
                Ints two = load_ints(pairs + (v / VECTORS) * stride + (v % VECTORS) * 4 * LANES);
                Floats weights = (Floats)(k == k2 ? two << 16 : two & (int32_t)0xffff0000);
                EACH_ROW sums[r][v] += input_of(WORD) * weights;
            }
        }
    }
#endif
    FINISH((Floats)sums[r][v]);
}

#if defined(__AVX512VNNI__)
/* Inline assembly, since gcc moves the sums between registers if the intrinsic is used. */
INLINE void add_products(__m512i *sums, __m512i input, __m512i weights) {
    __asm__("vpdpbusd %2, %1, %0" : "+v"(*sums) : "v"(input), "v"(weights));
}
#elif defined(__AVX2__)
#define EACH_HALF _Pragma("GCC unroll 16") for (int h = 0; h < 4 * panels; h++)

/* |x| (sign(x) w) = x w. The sum of two such products of numbers up to 127 fits into 16 bits. One block of assembly,
   since gcc otherwise computes the signs of many weights at once and runs out of registers for the sums. */
INLINE void add_products(__m256i *sums, __m256i input, __m256i size, __m256i weights, __m256i ones) {
    __m256i pairs;
    __asm__("vpsignb %3, %2, %1\n\t"
            "vpmaddubsw %1, %4, %1\n\t"
            "vpmaddwd %5, %1, %1\n\t"
            "vpaddd %1, %0, %0"
            : "+x"(*sums), "=&x"(pairs)
            : "x"(weights), "x"(input), "x"(size), "x"(ones));
}
#endif

INLINE void tile_int8(const int rows, const int panels, const uint32_t *x, const void *w, int64_t n_in,
                      const Ending *end, int64_t row, int64_t column) {
    int64_t stride = rounded(n_in, 4) * PANEL;
#if defined(__AVX512VNNI__)
    SUMS(__m512i);
    /* Inputs are shifted by 128 to be unsigned; `op->sums` corrects for that. */
    EACH_ROW EACH_VECTOR sums[r][v] = (__m512i)load_ints(end->op->sums + column + v * LANES);
    for (int64_t k = 0; k < words_of(INT8, n_in); k++) {
        __m512i weights[8];
        EACH_VECTOR weights[v] = _mm512_loadu_si512(WEIGHTS(4));
        EACH_ROW {
            __m512i input = _mm512_set1_epi32((int32_t)*WORD);
            EACH_VECTOR add_products(&sums[r][v], input, weights[v]);
        }
    }
    FINISH(__builtin_convertvector((Ints)sums[r][v], Floats));
#elif defined(__AVX2__)
    __m256i sums[MOST_ROWS][16], ones = _mm256_set1_epi16(1);
    EACH_ROW EACH_HALF sums[r][h] = _mm256_setzero_si256();
    for (int64_t k = 0; k < words_of(INT8, n_in); k++) {
        __m256i input[MOST_ROWS], size[MOST_ROWS];
        EACH_ROW input[r] = _mm256_set1_epi32((int32_t)*WORD), size[r] = _mm256_abs_epi8(input[r]);
        EACH_HALF {
            const char *place = (const char *)w + (h / 4) * stride + (k * 4 + h % 4) * 32;
            __m256i weights = _mm256_loadu_si256((const __m256i *)place);
            EACH_ROW add_products(&sums[r][h], input[r], size[r], weights, ones);
        }
    }
    float result[MOST_ROWS * 2 * PANEL];
    EACH_ROW EACH_HALF _mm256_storeu_ps(result + (4 * panels * r + h) * 8, _mm256_cvtepi32_ps(sums[r][h]));
    finish(end, result, rows, panels * PANEL, row, column);
#else
    SUMS(Floats);
    EACH_ROW EACH_VECTOR sums[r][v] = all(0.0f);
    for (int64_t k = 0; k < n_in; k++) {
        const char *fours = (const char *)w + k / 4 * PANEL * 4;
        EACH_VECTOR {
            Ints four = load_ints(fours + (v / VECTORS) * stride + (v % VECTORS) * 4 * LANES);
            Floats weights = __builtin_convertvector((four << (24 - 8 * (int)(k % 4))) >> 24, Floats);
            EACH_ROW sums[r][v] += input_of(WORD) * weights;
        }
    }
    FINISH(sums[r][v]);
#endif
}

/* --- Choosing tiles -------------------------------------------------------------------------------------- */

/* Compute one tile; all callers pass constants for `rows`, `panels` and `kind`. */
INLINE void tile(const int rows, const int panels, const int kind, const uint32_t *words, const char *w,
                 const Ending *end, int64_t row, int64_t column) {
    int64_t n_in = end->op->n_in;
    const uint32_t *x = words + row * words_of(kind, n_in);
    const char *first = w + column * rounded(n_in, 4) * (kind == FP32 ? 4 : kind == BF16 ? 2 : 1);
    if (kind == FP32) tile_fp32(rows, panels, x, first, n_in, end, row, column);
    if (kind == BF16) tile_bf16(rows, panels, x, first, n_in, end, row, column);
    if (kind == INT8) tile_int8(rows, panels, x, first, n_in, end, row, column);
}

/* Multiply all rows with the panels from `begin` to `last`. For few rows, several panels are processed at a time:
   enough independent sums are needed to hide the latency of a product. */
INLINE void panels_of_kind(const int kind, const uint32_t *x, const char *w, const Ending *end, int64_t n_rows,
                           int64_t begin, int64_t last) {
    int64_t p = begin;
    if (n_rows == 1)
        for (; p + PANELS_OF_ONE <= last; p += PANELS_OF_ONE)
            tile(1, PANELS_OF_ONE, kind, x, w, end, 0, p * PANEL);
#if defined(__AVX512F__)
    if (n_rows == 4)
        for (; p + 2 <= last; p += 2) tile(4, 2, kind, x, w, end, 0, p * PANEL);
#endif
    for (; p < last; p++) {
        for (int64_t row = 0, size; row < n_rows; row += size) {
            size = block_of(row, n_rows);
#if defined(__AVX512F__)
            if (size == 12) tile(12, 1, kind, x, w, end, row, p * PANEL);
            if (size == 8) tile(8, 1, kind, x, w, end, row, p * PANEL);
            if (size == 4) tile(4, 1, kind, x, w, end, row, p * PANEL);
#endif
            if (size == 2) tile(2, 1, kind, x, w, end, row, p * PANEL);
            if (size == 1) tile(1, 1, kind, x, w, end, row, p * PANEL);
        }
    }
}

static void multiply(const uint32_t *x, const Ending *end, int64_t n_rows, int64_t begin, int64_t last) {
    const char *w = end->op->weights;
    if (end->op->kind == FP32) panels_of_kind(FP32, x, w, end, n_rows, begin, last);
    if (end->op->kind == BF16) panels_of_kind(BF16, x, w, end, n_rows, begin, last);
    if (end->op->kind == INT8) panels_of_kind(INT8, x, w, end, n_rows, begin, last);
}

#endif
