/* A program in C that calls an exported function; it needs neither Motet nor Python. */
#include "fragment.h"

#include <math.h>
#include <stdio.h>

static float x[64 * 128], weights[128 * 128], result[64 * 128];

int main(void) {
    for (int i = 0; i < 64 * 128; i++) x[i] = (float)(i % 17 - 8) / 8;
    for (int i = 0; i < 128 * 128; i++) weights[i] = (float)(i % 13 - 6) / 16;
    fragment(x, weights, result);
    double worst = 0;
    for (int row = 0; row < 64; row++)
        for (int column = 0; column < 128; column++) {
            double sum = x[row * 128 + column];
            for (int k = 0; k < 128; k++) sum += (double)x[row * 128 + k] * weights[k * 128 + column];
            worst = fmax(worst, fabs(sum - result[row * 128 + column]));
        }
    printf("largest difference: %s\n", worst < 1e-3 ? "below 0.001" : "too big");
    return !(worst < 1e-3);
}
