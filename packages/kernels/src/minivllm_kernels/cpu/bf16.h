/* bfloat16 arithmetic with AVX-512: 16 floats or 32 bfloat16 values in a register. */
#pragma once

#include <immintrin.h>
#include <stdint.h>

typedef uint16_t bf16;

#define INLINE static inline __attribute__((always_inline))

/* Columns of a weight panel: two registers of 16 pairs. */
_Static_assert(PANEL == 32, "a panel is two registers of floats"); /* given by the compiler's command line */

INLINE __mmask16 first_lanes(int64_t count) {
    return count >= 16 ? 0xFFFF : count <= 0 ? 0 : (__mmask16)((1u << count) - 1);
}

INLINE __m512 load_bf16(const bf16 *from, __mmask16 lanes) {
    __m512i words = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes, from));
    return _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
}

INLINE void store_bf16(bf16 *to, __m512 values, __mmask16 lanes) {
    _mm256_mask_storeu_epi16(to, lanes, (__m256i)_mm512_cvtneps_pbh(values));
}

/* exp(x): 2^n times a polynomial in the rest, within 2 units in the last place; 0 for -inf. */
INLINE __m512 exp_ps(__m512 x) {
    const __m512 log2e = _mm512_set1_ps(1.44269504f);
    __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, log2e), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693145752f), x);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(1.42860677e-6f), r);
    __m512 p = _mm512_set1_ps(1.0f / 720);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 120));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 24));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 6));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.5f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    p = _mm512_scalef_ps(p, n);
    /* The rest of -inf is not a number. */
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, _mm512_set1_ps(-104.0f), _CMP_GT_OQ), p);
}

/*
 * acc[rows][2] += a[rows][2 * pairs] · panel[pairs][PANEL][2].
 *
 * The panel holds pairs of neighbouring inner indices side by side, as the dot-product instruction wants them; `a` is
 * row-major, and one pair of each row is broadcast at a time. `rows` is a constant after inlining: the accumulators
 * stay in registers.
 */
INLINE void panel_product(const int rows, const bf16 *a, int64_t a_stride, int64_t pairs, const bf16 *panel,
                          __m512 (*acc)[2]) {
    for (int64_t pair = 0; pair < pairs; pair++) {
        __m512bh left = (__m512bh)_mm512_loadu_si512(panel + pair * 2 * PANEL);
        __m512bh right = (__m512bh)_mm512_loadu_si512(panel + pair * 2 * PANEL + PANEL);
#pragma GCC unroll 12
        for (int row = 0; row < rows; row++) {
            int32_t both;
            __builtin_memcpy(&both, a + row * a_stride + 2 * pair, sizeof both);
            __m512bh broadcast = (__m512bh)_mm512_set1_epi32(both);
            acc[row][0] = _mm512_dpbf16_ps(acc[row][0], broadcast, left);
            acc[row][1] = _mm512_dpbf16_ps(acc[row][1], broadcast, right);
        }
    }
}
