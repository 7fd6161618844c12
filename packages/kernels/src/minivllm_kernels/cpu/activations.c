/* Normalization, rotation and gating of activations. */
#include "bf16.h"

INLINE float square_sum(const bf16 *x, int64_t size) {
    __m512 sum = _mm512_setzero_ps();
    for (int64_t i = 0; i < size; i += 16) {
        __m512 values = load_bf16(x + i, first_lanes(size - i));
        sum = _mm512_fmadd_ps(values, values, sum);
    }
    return _mm512_reduce_add_ps(sum);
}

INLINE void normalize(const bf16 *x, const float *weight, float eps, bf16 *y, int64_t size) {
    __m512 factor = _mm512_set1_ps(1.0f / __builtin_sqrtf(square_sum(x, size) / size + eps));
    for (int64_t i = 0; i < size; i += 16) {
        __mmask16 lanes = first_lanes(size - i);
        __m512 scaled = _mm512_mul_ps(load_bf16(x + i, lanes), factor);
        store_bf16(y + i, _mm512_mul_ps(scaled, _mm512_maskz_loadu_ps(lanes, weight + i)), lanes);
    }
}

/* y[row] = weight · x[row] / rms(x[row]); row r of x and y starts at r * x_stride and r * y_stride. */
void rms_norm(const bf16 *x, int64_t x_stride, const float *weight, float eps, bf16 *y, int64_t y_stride,
              int64_t rows, int64_t size, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t row = 0; row < rows; row++) normalize(x + row * x_stride, weight, eps, y + row * y_stride, size);
}

/* residual += x, then y = rms_norm(residual); all [rows, size]. */
void add_rms_norm(const bf16 *x, bf16 *residual, const float *weight, float eps, bf16 *y, int64_t rows, int64_t size,
                  int threads) {
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t row = 0; row < rows; row++) {
        const bf16 *added = x + row * size;
        bf16 *sum = residual + row * size;
        for (int64_t i = 0; i < size; i += 16) {
            __mmask16 lanes = first_lanes(size - i);
            store_bf16(sum + i, _mm512_add_ps(load_bf16(sum + i, lanes), load_bf16(added + i, lanes)), lanes);
        }
        normalize(sum, weight, eps, y + row * size, size);
    }
}

/* y[rows, size] = silu(x[:, :size]) · x[:, size:] */
void silu_and_mul(const bf16 *x, bf16 *y, int64_t rows, int64_t size, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t row = 0; row < rows; row++) {
        const bf16 *gate = x + row * 2 * size, *up = gate + size;
        for (int64_t i = 0; i < size; i += 16) {
            __mmask16 lanes = first_lanes(size - i);
            __m512 g = load_bf16(gate + i, lanes), one = _mm512_set1_ps(1.0f);
            __m512 silu = _mm512_div_ps(g, _mm512_add_ps(one, exp_ps(_mm512_sub_ps(_mm512_setzero_ps(), g))));
            store_bf16(y + row * size + i, _mm512_mul_ps(silu, load_bf16(up + i, lanes)), lanes);
        }
    }
}

INLINE void rotate(const bf16 *head, const float *cos_sin, bf16 *to, int64_t half) {
    for (int64_t i = 0; i < half; i += 16) {
        __mmask16 lanes = first_lanes(half - i);
        __m512 cosine = _mm512_maskz_loadu_ps(lanes, cos_sin + i), sine = _mm512_maskz_loadu_ps(lanes, cos_sin + half + i);
        __m512 first = load_bf16(head + i, lanes), second = load_bf16(head + half + i, lanes);
        store_bf16(to + i, _mm512_fmsub_ps(first, cosine, _mm512_mul_ps(second, sine)), lanes);
        store_bf16(to + half + i, _mm512_fmadd_ps(second, cosine, _mm512_mul_ps(first, sine)), lanes);
    }
}

/*
 * Rotate the queries in place; rotate the keys and copy them and the values to their slots of the cache.
 *
 * heads [tokens, num_heads + 2 * num_kv_heads, head_dim], cos_sin [positions, head_dim], caches
 * [blocks, num_kv_heads, block_size, head_dim].
 */
void rotate_and_cache(bf16 *heads, const int64_t *positions, const float *cos_sin, const int64_t *slots,
                      bf16 *key_cache, bf16 *value_cache, int64_t tokens, int64_t num_heads, int64_t num_kv_heads,
                      int64_t block_size, int64_t head_dim, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t token = 0; token < tokens; token++) {
        bf16 *query = heads + token * (num_heads + 2 * num_kv_heads) * head_dim;
        const bf16 *key = query + num_heads * head_dim, *value = key + num_kv_heads * head_dim;
        const float *angles = cos_sin + positions[token] * head_dim;
        for (int64_t head = 0; head < num_heads; head++)
            rotate(query + head * head_dim, angles, query + head * head_dim, head_dim / 2);
        int64_t block = slots[token] / block_size, offset = slots[token] % block_size;
        for (int64_t head = 0; head < num_kv_heads; head++) {
            int64_t slot = ((block * num_kv_heads + head) * block_size + offset) * head_dim;
            rotate(key + head * head_dim, angles, key_cache + slot, head_dim / 2);
            __builtin_memcpy(value_cache + slot, value + head * head_dim, head_dim * sizeof(bf16));
        }
    }
}
