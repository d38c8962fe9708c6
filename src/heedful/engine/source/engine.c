/* Execute programs; see program.h. Each instruction is executed for all rows before the next one. Either the
   rows are distributed over the threads, and each thread runs the whole program for its rows; or, if that would
   read many weights for few rows, the threads share each instruction that is large enough. */

#include <sched.h>
#include <stddef.h>

#include "attend.h"
#include "check.h"
#include "linear.h"
#include "program.h"
#include "rank.h"
#include "vectors.h"

#if defined(_OPENMP)
#include <omp.h>
#endif

/* --- Threads --------------------------------------------------------------------------------------------- */

typedef struct {
    int64_t number, count;
} Share;

/* Compute this thread's part of n items, from `begin` to `end`. */
INLINE void part_of(Share share, int64_t n, int64_t *begin, int64_t *end) {
    *begin = n * share.number / share.count;
    *end = n * (share.number + 1) / share.count;
}

typedef struct {
    int waiting __attribute__((aligned(64)));
    int generation __attribute__((aligned(64)));
} Barrier;

/* Wait at the barrier: spin for a moment, then yield the processor. */
static void meet(Barrier *barrier, int64_t count) {
    if (count == 1) return;
    int generation = __atomic_load_n(&barrier->generation, __ATOMIC_ACQUIRE);
    if (__atomic_add_fetch(&barrier->waiting, 1, __ATOMIC_ACQ_REL) == count) {
        __atomic_store_n(&barrier->waiting, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&barrier->generation, generation + 1, __ATOMIC_RELEASE);
        return;
    }
    for (int64_t looks = 0; __atomic_load_n(&barrier->generation, __ATOMIC_ACQUIRE) == generation; looks++) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
        if (looks > 4000) sched_yield();
    }
}

/* --- Instructions ---------------------------------------------------------------------------------------- */

static void embed(const Call *call, const Instruction *op, int64_t begin, int64_t end) {
    const float *table = op->weights;
    int64_t beside = op->n_out - op->n_in;
    for (int64_t row = begin; row < end; row++) {
        const float *x = table + call->ids[row] * op->n_in;
        const float *position = op->bias + call->positions[row] * (int64_t)(op->beside ? beside : op->n_out);
        float *out = call->buffers[op->out] + row * call->widths[op->out];
        for (int64_t i = 0; i < op->n_in; i++) out[i] = x[i] * op->number;
        for (int64_t i = 0; op->beside && i < beside; i++) out[op->n_in + i] = position[i];
        for (int64_t i = 0; !op->beside && i < op->n_in; i++) out[i] += position[i];
    }
}

/* (x - mean) / sqrt(variance + epsilon) * weights + bias, in two passes. */
static void norm(const Call *call, const Instruction *op, int64_t begin, int64_t end) {
    int64_t n = op->n_in;
    for (int64_t row = begin; row < end; row++) {
        const float *x = call->buffers[op->in] + row * call->widths[op->in];
        float *y = call->buffers[op->out] + row * call->widths[op->out];
        Floats sum = all(0.0f), squares = all(0.0f);
        for (int64_t i = 0; i < n; i += LANES) sum += load_some(x + i, n - i, 0.0f);
        float mean = sum_of(sum) / (float)n;
        for (int64_t i = 0; i < n; i += LANES) {
            Floats away = load_some(x + i, n - i, mean) - mean;
            squares += away * away;
        }
        float factor = 1.0f / sqrtf(sum_of(squares) / (float)n + op->number);
        for (int64_t i = 0; i < n; i += LANES) {
            Floats z = (load_some(x + i, n - i, mean) - mean) * factor;
            if (op->weights) z *= load_some((const float *)op->weights + i, n - i, 0.0f);
            if (op->bias) z += load_some(op->bias + i, n - i, 0.0f);
            store_some(y + i, z, n - i);
        }
    }
}

/* x * weights + bias, feature by feature. */
static void affine(const Call *call, const Instruction *op, int64_t begin, int64_t end) {
    const float *factor = op->weights;
    for (int64_t row = begin; row < end; row++) {
        const float *x = call->buffers[op->in] + row * call->widths[op->in];
        float *y = call->buffers[op->out] + row * call->widths[op->out];
        for (int64_t i = 0; i < op->n_in; i++) y[i] = x[i] * factor[i] + op->bias[i];
    }
}

static void convert(const Call *call, const Instruction *op, uint32_t *words, float *scales, int64_t begin,
                    int64_t end) {
    for (int64_t row = begin; row < end; row++) {
        const float *x = call->buffers[op->in] + row * call->widths[op->in];
        convert_row(op->kind, x, op->n_in, words, scales, row, call->n_rows);
    }
}

/* Up to this number of rows, every thread converts all rows itself; above it, the threads share them. */
enum { CONVERTED_ALONE = 4 };

static void linear(const Call *call, const Instruction *op, Share share, Barrier *barrier) {
    int64_t n = call->n_rows, begin, end;
    uint32_t *words = call->converted;
    float *scales = call->row_scales;
    if (n <= CONVERTED_ALONE) {
        words += share.number * CONVERTED_ALONE * call->n_converted;
        scales += share.number * CONVERTED_ALONE;
        convert(call, op, words, scales, 0, n);
    } else {
        part_of(share, n, &begin, &end);
        convert(call, op, words, scales, begin, end);
        meet(barrier, share.count);
    }
    Ending ending = {op, call->buffers[op->out], op->add < 0 ? NULL : call->buffers[op->add],
                     together(op->kind) == 4 ? scales : NULL, call->widths[op->out],
                     op->add < 0 ? 0 : call->widths[op->add]};
    part_of(share, rounded(op->n_out, PANEL) / PANEL, &begin, &end);
    multiply(words, &ending, n, begin, end);
}

static void execute(const Call *call, const Instruction *op, Share share, Barrier *barrier) {
    int64_t begin, end;
    part_of(share, call->n_rows * (op->op == ATTEND ? op->n_heads : 1), &begin, &end);
    if (op->op == EMBED) embed(call, op, begin, end);
    if (op->op == LINEAR) linear(call, op, share, barrier);
    if (op->op == NORM) norm(call, op, begin, end);
    if (op->op == AFFINE) affine(call, op, begin, end);
    if (op->op == STORE) keep(call, op, begin, end);
    if (op->op == ATTEND) attend(call, op, call->scores + share.number * call->n_scores, begin, end);
}

/* Estimate the cycles of an instruction. */
static int64_t cycles(const Call *call, const Instruction *op) {
    if (op->op == LINEAR) {
        int64_t each_cycle = op->kind == FP32 ? 12 : op->kind == BF16 ? 24 : 48;
        return call->n_rows * op->n_in * (int64_t)op->n_out / each_cycle;
    }
    if (op->op == ATTEND) {
        const int32_t *n_visible = op->reads_source ? call->source_lengths : call->n_visible;
        return call->n_rows * n_visible[call->n_rows / 2] * (int64_t)op->n_heads * ((int64_t)op->d_k + op->d_v) / 12;
    }
    return call->n_rows * (int64_t)(op->n_in > op->n_out ? op->n_in : op->n_out) / 2;
}

/* Below this number of cycles, synchronising the threads costs more than they save. */
enum { WORTH_SHARING = 8000 };

static void run_together(const Call *call, Share share, Barrier *barrier) {
    int behind = 0; /* whether the first thread has written since the last barrier */
    for (int64_t i = 0; i < call->n_instructions; i++) {
        const Instruction *op = &call->program[i];
        if (share.count > 1 && cycles(call, op) >= WORTH_SHARING) {
            if (behind) meet(barrier, share.count);
            execute(call, op, share, barrier);
            meet(barrier, share.count);
            behind = 0;
        } else {
            if (share.number == 0) execute(call, op, (Share){0, 1}, barrier);
            behind = 1;
        }
    }
}

/* Run the whole program for this thread's rows, as a separate call. */
static void run_own_rows(const Call *call, Share share, Barrier *barrier) {
    int64_t begin, end;
    part_of(share, call->n_rows, &begin, &end);
    float *buffers[MOST_BUFFERS];
    for (int64_t i = 0; i < call->n_buffers; i++) buffers[i] = call->buffers[i] + begin * call->widths[i];
    Call own = *call;
    own.n_rows = end - begin;
    own.buffers = buffers;
    /* Arrays that no instruction reads may be NULL. */
    if (own.ids) own.ids += begin;
    if (own.positions) own.positions += begin;
    if (own.cache_lines) own.cache_lines += begin;
    if (own.sequences) own.sequences += begin;
    if (own.n_visible) own.n_visible += begin;
    if (own.sources) own.sources += begin;
    if (own.source_lengths) own.source_lengths += begin;
    if (own.converted) own.converted += begin * own.n_converted;
    if (own.row_scales) own.row_scales += begin;
    if (own.scores) own.scores += share.number * own.n_scores;
    for (int64_t i = 0; i < own.n_instructions; i++) {
        const Instruction *op = &own.program[i];
        execute(&own, op, (Share){0, 1}, barrier);
        if (op->op == STORE && own.linked) meet(barrier, share.count);
    }
}

/* Whether to distribute rows: every thread then reads all weights, so they must be few, or used by many rows. */
static int by_rows(const Call *call) {
    enum { FEW_BYTES = 1 << 22, MANY_ROWS = 12 };
    int64_t bytes = 0;
    if (call->n_rows < call->n_threads) return 0;
    if (call->n_rows >= MANY_ROWS * call->n_threads) return 1;
    for (int64_t i = 0; i < call->n_instructions; i++) {
        const Instruction *op = &call->program[i];
        if (op->op == LINEAR) bytes += op->n_in * (int64_t)op->n_out * (op->kind == FP32 ? 4 : op->kind == BF16 ? 2 : 1);
    }
    return bytes <= FEW_BYTES;
}

/* Execute a program and return 0, or the reason why it was refused (see `check`). */
int64_t heedful_run(const Call *call) {
    Barrier barrier = {0, 0};
    int64_t wrong = check(call);
    if (wrong || call->n_rows == 0) return wrong;
#if defined(_OPENMP)
    if (call->n_threads > 1) {
        int dealt = by_rows(call);
#pragma omp parallel num_threads((int)call->n_threads)
        {
            Share share = {omp_get_thread_num(), omp_get_num_threads()};
            (dealt ? run_own_rows : run_together)(call, share, &barrier);
        }
        return SOUND;
    }
#endif
    run_together(call, (Share){0, 1}, &barrier);
    return SOUND;
}

/* values, ids: [n_rows, k]. Return the number of rows without a distribution. */
int64_t heedful_rank(const float *logits, int64_t n_rows, int64_t n, const int64_t *forbidden, int64_t n_forbidden,
                     int64_t k, float *values, int64_t *ids, int64_t n_threads) {
    int64_t sound = 0;
    (void)n_threads;
#pragma omp parallel for num_threads((int)n_threads) reduction(+ : sound) if (n_threads > 1 && n_rows > 3)
    for (int64_t row = 0; row < n_rows; row++)
        sound += rank_row(logits + row * n, n, forbidden, n_forbidden, k, values + row * k, ids + row * k);
    return n_rows - sound;
}
