/* Functions that LLVM's code for kernels calls and the compiler's libraries lack. Kernels run alone on one core, so that
   plain accesses are atomic among them; no interrupt accesses their memory. */
#include <stdint.h>
#include <math.h>

#define ATOMICS(bits, bytes)                                                                                           \
    uint##bits##_t motet_swap_##bytes(volatile uint##bits##_t *place, uint##bits##_t expected, uint##bits##_t desired) \
        __asm__("__sync_val_compare_and_swap_" #bytes);                                                                \
    uint##bits##_t motet_swap_##bytes(volatile uint##bits##_t *place, uint##bits##_t expected, uint##bits##_t desired) \
    {                                                                                                                  \
        uint##bits##_t before = *place;                                                                                \
        if (before == expected)                                                                                        \
            *place = desired;                                                                                          \
        return before;                                                                                                 \
    }                                                                                                                  \
    int motet_exchange_##bytes(volatile uint##bits##_t *place, uint##bits##_t *expected, uint##bits##_t desired,       \
                               int success, int failure) __asm__("__atomic_compare_exchange_" #bytes);                 \
    int motet_exchange_##bytes(volatile uint##bits##_t *place, uint##bits##_t *expected, uint##bits##_t desired,       \
                               int success, int failure)                                                               \
    {                                                                                                                  \
        uint##bits##_t before = *place;                                                                                \
        (void)success, (void)failure;                                                                                  \
        if (before == *expected)                                                                                       \
            return *place = desired, 1;                                                                                \
        return *expected = before, 0;                                                                                  \
    }

ATOMICS(32, 4)
ATOMICS(64, 8)

#ifdef __arm__
/* LLVM passes floating-point arguments of library functions in integer registers (the base procedure call standard);
   the library is compiled for the other one. `objcopy` removes the prefix. */
#define SOFT __attribute__((pcs("aapcs"), used))
#define UNARY(name)                                                                                                    \
    SOFT double soft_##name(double x) { return name(x); }                                                              \
    SOFT float soft_##name##f(float x) { return name##f(x); }
#define BINARY(name)                                                                                                   \
    SOFT double soft_##name(double x, double y) { return name(x, y); }                                                 \
    SOFT float soft_##name##f(float x, float y) { return name##f(x, y); }

UNARY(sin) UNARY(cos) UNARY(tan) UNARY(asin) UNARY(acos) UNARY(atan) UNARY(sinh) UNARY(cosh) UNARY(tanh) UNARY(asinh)
UNARY(acosh) UNARY(atanh) UNARY(exp) UNARY(exp2) UNARY(expm1) UNARY(log) UNARY(log2) UNARY(log10) UNARY(log1p)
UNARY(cbrt) UNARY(erf) UNARY(erfc) UNARY(floor) UNARY(ceil) UNARY(trunc) UNARY(round) UNARY(rint) UNARY(nearbyint)
UNARY(sqrt) UNARY(fabs)
BINARY(pow) BINARY(fmod) BINARY(remainder) BINARY(atan2) BINARY(hypot) BINARY(fmin) BINARY(fmax) BINARY(copysign)
SOFT double soft_fma(double x, double y, double z) { return fma(x, y, z); }
SOFT float soft_fmaf(float x, float y, float z) { return fmaf(x, y, z); }
SOFT double soft_ldexp(double x, int y) { return ldexp(x, y); }
SOFT float soft_ldexpf(float x, int y) { return ldexpf(x, y); }
/* Conversions to and from half precision, of processors without instructions for them. */
union half { __fp16 number; uint16_t bits; };
SOFT uint16_t __aeabi_f2h(float x) { return (union half){.number = x}.bits; }
SOFT float __aeabi_h2f(uint16_t x) { return (union half){.bits = x}.number; }
SOFT uint16_t __aeabi_d2h(double x) {
    union { float number; uint32_t bits; } odd = {.number = (float)x};
    /* Round to odd in float first: then the second rounding is exact. */
    if (x == x && (double)odd.number != x) {
        if (fabs((double)odd.number) > fabs(x))
            odd.bits -= 1;
        odd.bits |= 1;
    }
    return (union half){.number = odd.number}.bits;
}
/* To the nearest even number, which is the mode that kernels run in. */
SOFT double soft_roundeven(double x) { return rint(x); }
SOFT float soft_roundevenf(float x) { return rintf(x); }
#else
double roundeven(double x) { return rint(x); }
float roundevenf(float x) { return rintf(x); }
#endif
