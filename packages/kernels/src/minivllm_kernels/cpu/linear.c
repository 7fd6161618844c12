/* Matrix product with a packed bfloat16 weight. */
#include "bf16.h"

/* Rows of one task, a multiple of the largest tile: few enough that many cores find work in a prompt. */
enum { TASK_ROWS = 96 };

INLINE void linear_tile(const int rows, const bf16 *x, int64_t inner, const bf16 *panel, const float *bias, bf16 *y,
                        int64_t stride, int64_t columns) {
    __mmask16 lanes[2] = {first_lanes(columns), first_lanes(columns - 16)};
    __m512 acc[12][2];
    for (int half = 0; half < 2; half++) {
        __m512 start = bias ? _mm512_maskz_loadu_ps(lanes[half], bias + 16 * half) : _mm512_setzero_ps();
#pragma GCC unroll 12
        for (int row = 0; row < rows; row++) acc[row][half] = start;
    }
    panel_product(rows, x, inner, inner / 2, panel, acc);
#pragma GCC unroll 12
    for (int row = 0; row < rows; row++)
        for (int half = 0; half < 2; half++) store_bf16(y + row * stride + 16 * half, acc[row][half], lanes[half]);
}

static void linear_panel(int64_t rows, const bf16 *x, int64_t inner, const bf16 *panel, const float *bias, bf16 *y,
                         int64_t stride, int64_t columns) {
    while (rows > 0) {
        int step;
        if (rows >= 12) linear_tile(step = 12, x, inner, panel, bias, y, stride, columns);
        else if (rows >= 8) linear_tile(step = 8, x, inner, panel, bias, y, stride, columns);
        else if (rows >= 4) linear_tile(step = 4, x, inner, panel, bias, y, stride, columns);
        else if (rows >= 2) linear_tile(step = 2, x, inner, panel, bias, y, stride, columns);
        else linear_tile(step = 1, x, inner, panel, bias, y, stride, columns);
        x += step * inner;
        y += step * stride;
        rows -= step;
    }
}

/* y[rows, outer] = x[rows, inner] · weightᵀ (+ bias[outer]); weight packed as [outer / PANEL][inner / 2][PANEL][2]. */
void linear(const bf16 *x, const bf16 *weight, const float *bias, bf16 *y, int64_t rows, int64_t inner, int64_t outer,
            int threads) {
    int64_t panels = (outer + PANEL - 1) / PANEL;
    int64_t tasks = (rows + TASK_ROWS - 1) / TASK_ROWS;
    /* Panels come first: a thread's share is some panels with all their rows, and all shares are alike. */
#pragma omp parallel for collapse(2) schedule(static) num_threads(threads)
    for (int64_t p = 0; p < panels; p++)
        for (int64_t task = 0; task < tasks; task++) {
            int64_t first = task * TASK_ROWS, left = rows - first, column = p * PANEL;
            linear_panel(left < TASK_ROWS ? left : TASK_ROWS, x + first * inner, inner,
                         weight + column * inner, bias ? bias + column : 0, y + first * outer + column, outer,
                         outer - column);
        }
}
