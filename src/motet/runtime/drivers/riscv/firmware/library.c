/* What LLVM calls in kernels without being asked, beside the C and mathematics library: conversions of the narrow
   floating-point types. Those travel in the low bits of floating-point registers, the rest of which is ones.
   Rounding is to nearest, ties to even. */
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long u64;

static u32 bits_of_float(float value) { union { float f; u32 u; } x = {value}; return x.u; }
static float float_of_bits(u32 bits) { union { u32 u; float f; } x = {bits}; return x.f; }
static u64 bits_of_double(double value) { union { double f; u64 u; } x = {value}; return x.u; }

static float boxed(u16 narrow) { return float_of_bits(0xffff0000 | narrow); }

float __extendhfsf2(float argument) {
    u32 half = bits_of_float(argument) & 0xffff;
    u32 sign = (half & 0x8000) << 16, exponent = half >> 10 & 31, fraction = half & 0x3ff;
    if (exponent == 31)
        return float_of_bits(sign | 0x7f800000 | (fraction ? 0x400000 | fraction << 13 : 0));
    if (exponent)
        return float_of_bits(sign | (exponent + 112) << 23 | fraction << 13);
    float magnitude = (float)fraction * 0x1p-24f;
    return float_of_bits(sign | bits_of_float(magnitude));
}

/* A value of `width` bits of fraction after the leading one, exponent base 2 as given, to half. */
static u16 half_of(u16 sign, long exponent, u64 fraction, int width) {
    u64 significand = fraction | 1UL << width;
    long drop = width - 10;
    if (exponent < -14)
        drop += -14 - exponent;
    if (exponent > 15)
        return sign | 0x7c00;
    if (drop > width + 1)
        return sign;
    u64 kept = significand >> drop, rest = significand & ((1UL << drop) - 1), tie = 1UL << (drop - 1);
    kept += rest > tie || (rest == tie && (kept & 1));
    /* A carry goes into the exponent, which is what it should do. */
    return sign + (exponent < -14 ? 0 : (u16)(exponent + 14) << 10) + (u16)kept;
}

float __truncsfhf2(float value) {
    u32 bits = bits_of_float(value);
    u16 sign = bits >> 16 & 0x8000;
    long exponent = bits >> 23 & 0xff;
    u32 fraction = bits & 0x7fffff;
    if (exponent == 0xff)
        return boxed(sign | 0x7c00 | (fraction ? 0x200 | fraction >> 13 : 0));
    return boxed(exponent ? half_of(sign, exponent - 127, fraction, 23) : sign);
}

float __truncdfhf2(double value) {
    u64 bits = bits_of_double(value);
    u16 sign = bits >> 48 & 0x8000;
    long exponent = bits >> 52 & 0x7ff;
    u64 fraction = bits & 0xfffffffffffffUL;
    if (exponent == 0x7ff)
        return boxed(sign | 0x7c00 | (fraction ? 0x200 | fraction >> 42 : 0));
    return boxed(exponent ? half_of(sign, exponent - 1023, fraction, 52) : sign);
}

float __truncsfbf2(float value) {
    u32 bits = bits_of_float(value);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return boxed(bits >> 16 | 0x40);
    return boxed((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float __truncdfbf2(double value) {
    /* Round to odd in float first: then the second rounding is exact. */
    float narrow = (float)value;
    u32 bits = bits_of_float(narrow);
    if (narrow == narrow && (double)narrow != value) {
        double magnitude = value < 0 ? -value : value, near = narrow < 0 ? -(double)narrow : (double)narrow;
        if (near > magnitude)
            bits -= 1;
        bits |= 1;
    }
    return __truncsfbf2(float_of_bits(bits));
}
