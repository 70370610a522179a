#!/usr/bin/env python3
"""Writes exact_sum.txt: sums of doubles by Python's math.fsum, which rounds correctly. One case a line:
sum, then the terms, all as C99 hexadecimal. Run: python3 make_exact_sum.py > exact_sum.txt"""
import math
import random
import struct

random.seed(20)


def any_double():
    while True:
        value = struct.unpack("<d", random.randbytes(8))[0]
        if math.isfinite(value) and abs(value) < 1e300:
            return value


def cases():
    yield []
    yield [1.0]
    yield [5e-324]
    yield [5e-324] * 3
    yield [2.0**-1022, -5e-324]
    yield [1e308, 1e-308, -1e308]
    yield [1.0, 2.0**-53]
    yield [1.0, 2.0**-53, 2.0**-120]
    yield [1.0 + 2.0**-52, 2.0**-53]
    yield [-1.0, -(2.0**-53), 2.0**-200]
    yield [0.1] * 10
    yield [2.0**53, 1.0, 1.0]
    yield [1e16, 1.0, -1e16]
    yield [2.0**i for i in range(-1070, 1000, 61)]
    yield [(-1.0) ** i * 2.0**i for i in range(-1070, 1000, 33)]
    for n in (2, 3, 5, 17, 40):
        for _ in range(6):
            yield [any_double() for _ in range(n)]
            yield [random.uniform(-1, 1) * 10.0 ** random.randint(-18, 18) for _ in range(n)]
            half = [any_double() for _ in range(n)]
            yield half + [-x for x in half] + [random.uniform(-1, 1) * 1e-30]


for terms in cases():
    print(" ".join([math.fsum(terms).hex()] + [x.hex() for x in terms]))
