/*
 * Causal attention over the paged cache (online softmax: Milakov and Gimelshein, 2018; tiling: Dao et al., 2022).
 *
 * One task is a tile of queries of one request and the KV head they share. It walks over its context KEYS tokens at a
 * time: each step lays keys and values out as panels, once for all queries of the tile, and spends two small products.
 */
#include "bf16.h"

/* MAX_ROWS, queries times heads of one tile, and MAX_HEAD_DIM are given by the compiler's command line. */
enum {
    KEYS = PANEL, /* tokens of context in one step */
    AHEAD = 1     /* steps between asking for memory and using it */
};

typedef struct {
    const bf16 *query; /* [tokens], query_stride apart: [num_heads, head_dim] */
    const bf16 *key_cache, *value_cache; /* [blocks, num_kv_heads, block_size, head_dim] */
    bf16 *output;      /* [tokens, num_heads, head_dim] */
    int64_t query_stride, num_heads, num_kv_heads, block_size, head_dim;
    int64_t padded_dim; /* head_dim rounded up to whole panels */
    float scale;
} Attention;

typedef struct {
    _Alignas(64) bf16 query[MAX_ROWS * MAX_HEAD_DIM];
    _Alignas(64) bf16 keys[MAX_HEAD_DIM * KEYS];   /* [head_dim / 2][KEYS][2] */
    _Alignas(64) bf16 values[MAX_HEAD_DIM * KEYS]; /* [head_dim / PANEL][KEYS / 2][PANEL][2] */
    _Alignas(64) bf16 weights[MAX_ROWS * KEYS];
    _Alignas(64) float output[MAX_ROWS * MAX_HEAD_DIM];
    float largest[MAX_ROWS], total[MAX_ROWS];
} Tile;

/* 16 rows of 16 pairs become 16 columns: pair j of row i goes to to[j * KEYS + i] (in pairs). */
INLINE void transpose_pairs(const bf16 *const *rows, int64_t offset, __mmask16 lanes, bf16 *to) {
    __m512i in[16], out[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) in[i] = _mm512_maskz_loadu_epi32(lanes, rows[i] + offset);
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
        out[i] = _mm512_unpacklo_epi32(in[i], in[i + 1]);
        out[i + 1] = _mm512_unpackhi_epi32(in[i], in[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4)
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++) {
            in[i + 2 * j] = _mm512_unpacklo_epi64(out[i + j], out[i + j + 2]);
            in[i + 2 * j + 1] = _mm512_unpackhi_epi64(out[i + j], out[i + j + 2]);
        }
    /* in[4 * q + c], 128-bit lane l: column 4 * l + c of rows 4 * q to 4 * q + 3. */
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) {
        __m512i low01 = _mm512_shuffle_i32x4(in[c], in[4 + c], 0x44), high01 = _mm512_shuffle_i32x4(in[c], in[4 + c], 0xEE);
        __m512i low23 = _mm512_shuffle_i32x4(in[8 + c], in[12 + c], 0x44);
        __m512i high23 = _mm512_shuffle_i32x4(in[8 + c], in[12 + c], 0xEE);
        out[c] = _mm512_shuffle_i32x4(low01, low23, 0x88);
        out[4 + c] = _mm512_shuffle_i32x4(low01, low23, 0xDD);
        out[8 + c] = _mm512_shuffle_i32x4(high01, high23, 0x88);
        out[12 + c] = _mm512_shuffle_i32x4(high01, high23, 0xDD);
    }
#pragma GCC unroll 16
    for (int j = 0; j < 16; j++)
        if (lanes >> j & 1) _mm512_storeu_si512(to + j * 2 * KEYS, out[j]);
}

typedef struct {
    const bf16 *keys[KEYS], *values[KEYS];
} Context;

/* Find `count` tokens from `first` on. Past the end the last token repeats; its weight will be zero. */
static void find_context(const Attention *a, const int32_t *block_table, int64_t kv_head, int64_t first, int64_t count,
                         Context *context) {
    int64_t index = first / a->block_size, offset = first % a->block_size, slot = 0;
    for (int64_t i = 0; i < KEYS; i++) {
        if (i < count) {
            slot = ((block_table[index] * a->num_kv_heads + kv_head) * a->block_size + offset) * a->head_dim;
            if (++offset == a->block_size) index++, offset = 0;
        }
        context->keys[i] = a->key_cache + slot;
        context->values[i] = a->value_cache + slot;
    }
}

static void prefetch_context(const Context *context, int64_t head_dim) {
    for (int64_t i = 0; i < KEYS; i++)
        for (int64_t d = 0; d < head_dim; d += 32) {
            _mm_prefetch(context->keys[i] + d, _MM_HINT_T1);
            _mm_prefetch(context->values[i] + d, _MM_HINT_T1);
        }
}

/* Lay keys and values out as panels. */
static void load_context(const Context *context, int64_t head_dim, Tile *tile) {
    const bf16 *const *keys = context->keys, *const *values = context->values;
    for (int64_t d = 0; d < head_dim; d += 32) {
        __mmask16 pairs = first_lanes((head_dim - d) / 2);
        transpose_pairs(keys, d, pairs, tile->keys + d * KEYS);
        transpose_pairs(keys + 16, d, pairs, tile->keys + d * KEYS + 32);
        for (int64_t pair = 0; pair < KEYS / 2; pair++) {
            __m512i even = _mm512_maskz_loadu_epi32(pairs, values[2 * pair] + d);
            __m512i odd = _mm512_maskz_loadu_epi32(pairs, values[2 * pair + 1] + d);
            /* Neighbours in time side by side: unpacking keeps 128-bit lanes apart, the permutation mends that. */
            __m512i low = _mm512_unpacklo_epi16(even, odd), high = _mm512_unpackhi_epi16(even, odd);
            __m512i front = _mm512_set_epi64(11, 10, 3, 2, 9, 8, 1, 0), back = _mm512_set_epi64(15, 14, 7, 6, 13, 12, 5, 4);
            bf16 *to = tile->values + d * KEYS + pair * 2 * PANEL;
            _mm512_store_si512(to, _mm512_permutex2var_epi64(low, front, high));
            _mm512_store_si512(to + PANEL, _mm512_permutex2var_epi64(low, back, high));
        }
    }
}

/* Turn the scores of a row into weights, and bring what the row has summed so far to the new largest score. */
INLINE void softmax_row(const Attention *a, Tile *tile, int row, const __m512 *scores, int64_t visible) {
    __mmask16 lanes[2] = {first_lanes(visible), first_lanes(visible - 16)};
    __m512 lowest = _mm512_set1_ps(-__builtin_inff());
    __m512 left = _mm512_mask_mul_ps(lowest, lanes[0], scores[0], _mm512_set1_ps(a->scale));
    __m512 right = _mm512_mask_mul_ps(lowest, lanes[1], scores[1], _mm512_set1_ps(a->scale));
    float largest = _mm512_reduce_max_ps(_mm512_max_ps(left, right));
    if (largest > tile->largest[row]) {
        __m512 factor = exp_ps(_mm512_set1_ps(tile->largest[row] - largest));
        float *output = tile->output + row * a->padded_dim;
        for (int64_t d = 0; d < a->padded_dim; d += 16)
            _mm512_store_ps(output + d, _mm512_mul_ps(factor, _mm512_load_ps(output + d)));
        tile->total[row] *= _mm512_cvtss_f32(factor);
        tile->largest[row] = largest;
    }
    __m512 shift = _mm512_set1_ps(tile->largest[row]);
    left = exp_ps(_mm512_sub_ps(left, shift));
    right = exp_ps(_mm512_sub_ps(right, shift));
    tile->total[row] += _mm512_reduce_add_ps(_mm512_add_ps(left, right));
    _mm512_storeu_si512(tile->weights + row * KEYS, (__m512i)_mm512_cvtne2ps_pbh(right, left));
}

/* One step over the context for `rows` rows from `first_row` on; row r belongs to query r / group. */
INLINE void attend_rows(const int rows, const Attention *a, Tile *tile, int first_row, int64_t group,
                        int64_t first_visible, int64_t count) {
    __m512 acc[12][2];
    for (int row = 0; row < rows; row++) acc[row][0] = acc[row][1] = _mm512_setzero_ps();
    panel_product(rows, tile->query + first_row * a->head_dim, a->head_dim, a->head_dim / 2, tile->keys, acc);
    for (int row = 0; row < rows; row++) {
        int64_t visible = first_visible + (first_row + row) / group;
        if (visible > count) visible = count;
        /* A row that sees nothing of this step keeps its sums: its weights are all exp(-inf). */
        softmax_row(a, tile, first_row + row, acc[row], visible);
    }
    for (int64_t d = 0; d < a->head_dim; d += PANEL) {
        float *output = tile->output + first_row * a->padded_dim + d;
#pragma GCC unroll 12
        for (int row = 0; row < rows; row++)
            for (int half = 0; half < 2; half++) acc[row][half] = _mm512_load_ps(output + row * a->padded_dim + 16 * half);
        panel_product(rows, tile->weights + first_row * KEYS, KEYS, KEYS / 2, tile->values + d * KEYS, acc);
#pragma GCC unroll 12
        for (int row = 0; row < rows; row++)
            for (int half = 0; half < 2; half++) _mm512_store_ps(output + row * a->padded_dim + 16 * half, acc[row][half]);
    }
}

/* Attend from `queries` neighbouring tokens with the heads of one KV head; the first one sees `visible` tokens. */
static void attend_tile(const Attention *a, const int32_t *block_table, int64_t kv_head, int64_t token, int64_t queries,
                        int64_t visible, Tile *tile) {
    int64_t group = a->num_heads / a->num_kv_heads, head_dim = a->head_dim;
    int rows = (int)(queries * group);
    for (int row = 0; row < rows; row++) {
        int64_t head = kv_head * group + row % group;
        __builtin_memcpy(tile->query + row * head_dim,
                         a->query + (token + row / group) * a->query_stride + head * head_dim, head_dim * sizeof(bf16));
        tile->largest[row] = -__builtin_inff();
        tile->total[row] = 0;
    }
    __builtin_memset(tile->output, 0, rows * a->padded_dim * sizeof(float));
    int64_t length = visible + queries - 1;
    Context contexts[AHEAD + 1];
    for (int64_t ahead = 0; ahead <= AHEAD && ahead * KEYS < length; ahead++) {
        find_context(a, block_table, kv_head, ahead * KEYS, length - ahead * KEYS, &contexts[ahead]);
        prefetch_context(&contexts[ahead], head_dim);
    }
    for (int64_t first = 0; first < length; first += KEYS) {
        int64_t count = length - first < KEYS ? length - first : KEYS, later = first + (AHEAD + 1) * KEYS;
        Context *context = &contexts[first / KEYS % (AHEAD + 1)];
        load_context(context, head_dim, tile);
        if (later < length) {
            find_context(a, block_table, kv_head, later, length - later, context);
            prefetch_context(context, head_dim);
        }
        for (int row = 0; row < rows;) {
            int left = rows - row, step;
            if (left >= 12) attend_rows(step = 12, a, tile, row, group, visible - first, count);
            else if (left >= 4) attend_rows(step = 4, a, tile, row, group, visible - first, count);
            else if (left >= 3) attend_rows(step = 3, a, tile, row, group, visible - first, count);
            else attend_rows(step = 1, a, tile, row, group, visible - first, count);
            row += step;
        }
    }
    for (int row = 0; row < rows; row++) {
        bf16 *output = a->output + ((token + row / group) * a->num_heads + kv_head * group + row % group) * head_dim;
        __m512 total = _mm512_set1_ps(tile->total[row]);
        for (int64_t d = 0; d < head_dim; d += 16)
            store_bf16(output + d, _mm512_div_ps(_mm512_load_ps(tile->output + row * a->padded_dim + d), total),
                       first_lanes(head_dim - d));
    }
}

/*
 * Attend from the last tokens of `requests` requests; query_start_loc [requests + 1] says which tokens are whose, context_lens
 * [requests] how long each context is, block_tables [requests], table_stride apart, where it lies.
 */
void paged_attention(const bf16 *query, int64_t query_stride, const bf16 *key_cache, const bf16 *value_cache,
                     const int32_t *block_tables, int64_t table_stride, const int32_t *query_start_loc,
                     const int32_t *context_lens, bf16 *output, int64_t requests, int64_t num_heads,
                     int64_t num_kv_heads, int64_t block_size, int64_t head_dim, float scale, int threads) {
    int64_t padded_dim = (head_dim + PANEL - 1) / PANEL * PANEL;
    Attention a = {query, key_cache, value_cache, output, query_stride, num_heads, num_kv_heads, block_size, head_dim, padded_dim, scale};
    int64_t tile_queries = MAX_ROWS / (num_heads / num_kv_heads), longest = 0;
    for (int64_t request = 0; request < requests; request++) {
        int64_t queries = query_start_loc[request + 1] - query_start_loc[request];
        if (queries > longest) longest = queries;
    }
    int64_t tiles = (longest + tile_queries - 1) / tile_queries;
#pragma omp parallel num_threads(threads)
    {
        Tile tile;
        /* The last tile has the longest context: first come the largest tasks. */
#pragma omp for schedule(dynamic) collapse(3)
        for (int64_t from_last = 0; from_last < tiles; from_last++)
            for (int64_t request = 0; request < requests; request++)
                for (int64_t kv_head = 0; kv_head < num_kv_heads; kv_head++) {
                    int64_t start = query_start_loc[request], queries = query_start_loc[request + 1] - start;
                    int64_t first = (tiles - 1 - from_last) * tile_queries, left = queries - first;
                    if (left <= 0) continue;
                    attend_tile(&a, block_tables + request * table_stride, kv_head, start + first,
                                left < tile_queries ? left : tile_queries, context_lens[request] - left + 1, &tile);
                }
    }
}
