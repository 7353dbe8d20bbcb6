#include "fmt.h"

#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <wchar.h>

#include "compiler.h"

struct utf8_form {
    unsigned char mask, lead;
    uint32_t least; /* smaller code points in this form are overlong */
};

static const struct utf8_form utf8_forms[] = {
    {0x80, 0x00, 0}, {0xe0, 0xc0, 0x80}, {0xf0, 0xe0, 0x800}, {0xf8, 0xf0, 0x10000}};

/* The length of the valid UTF-8 character at S (N bytes are there), or 0. */
static size_t utf8_decode(const unsigned char *s, size_t n, uint32_t *code)
{
    size_t len = 0;

    while (len < ARRAY_SIZE(utf8_forms) && (*s & utf8_forms[len].mask) != utf8_forms[len].lead)
        len++;
    if (len == ARRAY_SIZE(utf8_forms) || len + 1 > n)
        return 0;
    *code = *s & (unsigned char)~utf8_forms[len].mask;
    for (size_t i = 1; i <= len; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
        *code = *code << 6 | (s[i] & 0x3f);
    }
    if (*code < utf8_forms[len].least || *code > 0x10ffff || (*code >= 0xd800 && *code <= 0xdfff))
        return 0;
    return len + 1;
}

static bool is_harmless(uint32_t code)
{
    if (code < 0x20 || code == '\\' || (code >= 0x7f && code <= 0x9f))
        return false;
    /* Overrides of the writing direction: they make a line read as another one. */
    return !(code >= 0x202a && code <= 0x202e) && !(code >= 0x2066 && code <= 0x2069);
}

/* How many bytes at S may be copied as they are; 0: its first byte must be escaped. */
static size_t plain_length(const unsigned char *s, size_t n, bool ascii)
{
    uint32_t code;
    size_t len = utf8_decode(s, n, &code);

    return len && is_harmless(code) && (!ascii || len == 1) ? len : 0;
}

static size_t escape(char esc[5], unsigned char c)
{
    static const char hex[] = "0123456789abcdef";

    esc[0] = '\\';
    if (c == '\n' || c == '\t' || c == '\\') {
        esc[1] = c == '\n' ? 'n' : c == '\t' ? 't' : '\\';
        return 2;
    }
    esc[1] = 'x';
    esc[2] = hex[c >> 4];
    esc[3] = hex[c & 15];
    return 4;
}

size_t fmt_safe(char *dst, size_t size, const char *src, size_t src_len, bool ascii)
{
    const unsigned char *s = (const unsigned char *)src;
    size_t n = strnlen(src, src_len), used = 0;

    if (size == 0)
        return 0;
    while (n) {
        char esc[5];
        const void *out = s;
        size_t take = plain_length(s, n, ascii), len = take;

        if (!take) {
            out = esc;
            len = escape(esc, *s);
            take = 1;
        }
        if (used + len >= size)
            break;
        memcpy(dst + used, out, len);
        used += len;
        s += take;
        n -= take;
    }
    dst[used] = '\0';
    return used;
}

static char *unknown(char *dst, size_t size)
{
    snprintf(dst, size, "-");
    return dst;
}

char *fmt_fixed(char *dst, size_t size, double value, int decimals, const char *unit)
{
    static const int scale[] = {1, 10, 100};

    if (isnan(value))
        return unknown(dst, size);
    /* Not %f: that follows the locale's decimal point. */
    long long n = llround(fmin(fabs(value), 1e15) * scale[decimals]);
    const char *sign = value < 0 && n != 0 ? "-" : "";

    if (decimals == 0)
        snprintf(dst, size, "%s%lld%s", sign, n, unit);
    else
        snprintf(dst, size, "%s%lld.%0*lld%s", sign, n / scale[decimals], decimals,
                 n % scale[decimals], unit);
    return dst;
}

static char *print_long_duration(char *dst, size_t size, double seconds)
{
    long long s = llround(fmin(seconds, 1e15)), m = s / 60, h = m / 60;

    if (m < 60)
        snprintf(dst, size, "%lldm%02llds", m, s % 60);
    else if (h < 100)
        snprintf(dst, size, "%lldh%02lldm", h, m % 60);
    else
        snprintf(dst, size, "%lldd%02lldh", h / 24, h % 24);
    return dst;
}

char *fmt_duration(char *dst, size_t size, double ns)
{
    static const char *const units[] = {"us", "ms", "s"};
    double v = ns / NSEC_PER_USEC;
    size_t unit = 0;

    if (!(ns >= 0))
        return unknown(dst, size);
    /* 999.5 and not 1000: what would be rounded up to 1000us is shown as 1.0ms. */
    for (; unit < 2 && v >= 999.5; unit++)
        v /= 1000;
    if (unit == 2 && v >= 59.95)
        return print_long_duration(dst, size, v);
    return fmt_fixed(dst, size, v, v >= 0.05 && v < 99.95, units[unit]);
}

/* Zeros at the end of the decimals of TEXT go, and a decimal point left alone. */
static void trim_decimals(char *text)
{
    char *end = text + strlen(text);

    if (!strchr(text, '.'))
        return;
    while (end[-1] == '0')
        *--end = '\0';
    if (end[-1] == '.')
        end[-1] = '\0';
}

char *fmt_si(char *dst, size_t size, double value)
{
    static const char *const units[] = {"", "k", "M", "G", "T", "P", "E"};
    double v = value;
    char number[32];
    size_t unit = 0;

    if (isnan(value))
        return unknown(dst, size);
    for (; unit + 1 < ARRAY_SIZE(units) && fabs(v) >= 999.5; unit++)
        v /= 1000;
    fmt_fixed(number, sizeof(number), v, fabs(v) < 9.995 ? 2 : fabs(v) < 99.95, "");
    trim_decimals(number);
    snprintf(dst, size, "%s%s", number, units[unit]);
    return dst;
}

char *fmt_kib(char *dst, size_t size, double kb)
{
    static const char *const units[] = {"K", "M", "G", "T", "P", "E"};
    double v = kb;
    size_t unit = 0;

    if (isnan(kb))
        return unknown(dst, size);
    if (fabs(kb) < 0.5)
        return fmt_fixed(dst, size, 0, 0, "");
    /* From 1000 on, so that three digits, a sign and a unit always do. */
    for (; unit + 1 < ARRAY_SIZE(units) && fabs(v) >= 999.5; unit++)
        v /= 1024;
    return fmt_fixed(dst, size, v, unit > 0 && fabs(v) < 9.95, units[unit]);
}

char *fmt_count(char *dst, size_t size, double value)
{
    return fmt_fixed(dst, size, value, fabs(value) < 99.95, "");
}

char *fmt_msec(char *dst, size_t size, double ms)
{
    return fmt_duration(dst, size, ms * NSEC_PER_MSEC);
}

/* Text on the terminal --------------------------------------------------------------------- */

size_t text_next(const char *s, int *cells)
{
    wchar_t wc;
    mbstate_t state = {0};
    size_t len = mbrtowc(&wc, s, strnlen(s, MB_LEN_MAX), &state);

    *cells = -1;
    if (len == 0 || len > MB_LEN_MAX)
        return 1; /* not a character of this locale: a byte */
    *cells = wcwidth(wc);
    return len;
}

int text_cells(const char *s)
{
    int sum = 0, cells;

    for (; *s; sum += cells < 0 ? 1 : cells)
        s += text_next(s, &cells);
    return sum;
}

void text_cut(char *s, size_t size, int width, bool ascii)
{
    const char *mark = ascii ? "~" : "\u2026";
    char *cut = s; /* where the mark goes if the text proves too long */

    if (width < 1 || text_cells(s) <= width)
        return;
    for (int sum = 0, cells; *cut; sum += cells) {
        size_t len = text_next(cut, &cells);
        cells = cells < 0 ? 1 : cells;
        if (sum + cells > width - 1 || cut + len + strlen(mark) >= s + size)
            break;
        cut += len;
    }
    snprintf(cut, size - (size_t)(cut - s), "%s", mark);
}
