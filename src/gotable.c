#include "gotable.h"

#include <string.h>

#include "compiler.h"

enum {
    MAGIC_1_18 = 0xfffffff0,
    MAGIC_1_20 = 0xfffffff1,
    /* Words of the header behind the first 8 bytes. */
    WORD_FUNCTIONS = 0,
    WORD_TEXT = 2,
    WORD_VALUES = 6,
    WORD_INDEX = 7,
    HEADER = 8 + 8 * 8,
    /* Bytes into what stands about a function. */
    AT_VALUES = 16,
    AT_FLAGS_1_18 = 37,
    AT_FLAGS_1_20 = 41,
    FLAG_TOP = 1,
    FLAG_OTHER_STACK = 2, /* it sets the stack pointer */
};

struct table {
    const uint8_t *bytes;
    size_t len;
};

static bool read32(const struct table *t, uint64_t at, uint32_t *out)
{
    if (at > t->len || t->len - at < sizeof(*out))
        return false;
    memcpy(out, t->bytes + at, sizeof(*out));
    return true;
}

static uint64_t header_word(const struct table *t, unsigned i)
{
    uint64_t v;

    memcpy(&v, t->bytes + 8 + i * 8, sizeof(v));
    return v;
}

/* What stands about the function that holds the code at OFFSET from the text, and where that
 * begins. */
static bool find_function(const struct table *t, uint64_t offset, uint64_t *about, uint32_t *start)
{
    uint64_t index = header_word(t, WORD_INDEX), n = header_word(t, WORD_FUNCTIONS);
    uint32_t into, next;

    if (index > t->len || n > (t->len - index) / 8)
        return false;
    uint64_t before = COUNT_FIRST(n, i, read32(t, index + i * 8, start) && *start <= offset);
    if (before == 0 || !read32(t, index + (before - 1) * 8, start) ||
        !read32(t, index + (before - 1) * 8 + 4, &into) || !read32(t, index + before * 8, &next))
        return false;
    *about = index + into;
    return offset < next; /* behind the last one stands the end */
}

static bool read_varint(const struct table *t, uint64_t *at, uint32_t *out)
{
    *out = 0;
    for (unsigned shift = 0; shift < 32 && *at < t->len; shift += 7) {
        uint8_t b = t->bytes[(*at)++];
        *out |= (uint32_t)(b & 0x7f) << shift;
        if (!(b & 0x80))
            return true;
    }
    return false;
}

/* The value that the list at AT, pairs of (difference, bytes of code), has INTO bytes of code. */
static bool value_at(const struct table *t, uint64_t at, uint64_t into, int32_t *value)
{
    uint64_t code = 0;
    uint32_t difference, bytes, unit = t->bytes[6];

    *value = -1;
    for (bool first = true; read_varint(t, &at, &difference); first = false) {
        if (difference == 0 && !first)
            return false;
        *value =
            (int32_t)((uint32_t)*value + (difference & 1 ? ~(difference >> 1) : difference >> 1));
        if (!read_varint(t, &at, &bytes))
            return false;
        code += (uint64_t)bytes * unit;
        if (into < code)
            return true;
    }
    return false;
}

bool gotable_find(const uint8_t *table, size_t len, uint64_t text, uint64_t pc,
                  struct go_frame *out)
{
    const struct table t = {table, len};
    uint32_t magic, start, values;
    uint64_t about;
    int32_t size;

    if (len < HEADER || !read32(&t, 0, &magic) || (magic != MAGIC_1_18 && magic != MAGIC_1_20) ||
        table[7] != 8)
        return false;
    if (header_word(&t, WORD_TEXT) != 0) /* 0 where the loader fills it in */
        text = header_word(&t, WORD_TEXT);
    if (pc < text || !find_function(&t, pc - text, &about, &start) ||
        !read32(&t, about + AT_VALUES, &values))
        return false;
    uint64_t flags = about + (magic == MAGIC_1_18 ? AT_FLAGS_1_18 : AT_FLAGS_1_20);
    if (flags >= len || header_word(&t, WORD_VALUES) > len ||
        !value_at(&t, header_word(&t, WORD_VALUES) + values, pc - text - start, &size) || size < 0)
        return false;
    out->size = (uint64_t)size;
    out->outermost = table[flags] & (FLAG_TOP | FLAG_OTHER_STACK);
    return true;
}
